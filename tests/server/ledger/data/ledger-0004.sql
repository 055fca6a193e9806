BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	actor VARCHAR(200) NOT NULL, 
	action VARCHAR(40) NOT NULL, 
	population VARCHAR(100), 
	run VARCHAR(40), 
	round INTEGER, 
	event VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id), 
	CONSTRAINT uq_audit_event UNIQUE (event)
);
INSERT INTO "audit" VALUES(1,1.79544062402012348173e+09,'officer','population.create','people',NULL,NULL,'84cf9da6ad221616d13b111a320a4cf3','{"accounting":"individual","adjacency":"zero_out","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"reservation_seconds":null,"salt":"81125905b235ab8ccc8fa8ed9f6a27c4b8520d8058de5a753c478d0f7fdabceb","simulated":false,"two_persons":false,"unit":"user"}','7d104f3e21d45267cf2a9709d54ca9e8da6b0bc159a5110d4a267015af2034ab','9d73392f680b126d2e1e71b74cba40f2b4639303be53d50872bb774193237d03');
INSERT INTO "audit" VALUES(2,1.79544062420904326432e+09,'officer','population.raise','people',NULL,NULL,'ee96698a5f337d5d85a6cb41ce721155','{"delta":1e-06,"epsilon":5.0,"old":{"delta":1e-06,"epsilon":4.0},"reason":"agreed on 3 May"}','9d73392f680b126d2e1e71b74cba40f2b4639303be53d50872bb774193237d03','ca0767dc7a03989f0e0c79139edce97e0d8ea6ea9de2cc8cdd1cdb7fa02c130f');
INSERT INTO "audit" VALUES(3,1.7954406242349739075e+09,'officer','population.create','others',NULL,NULL,'da30722f92e5a320b208ddbc5be17074','{"accounting":"worst-case","adjacency":"add_remove","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":1.0,"leak":1e-07,"reservation_seconds":null,"salt":"eb6219df448bb5843afda0db189f80ce2615e4f1d05239d56961941c55fa9dc2","simulated":false,"two_persons":false,"unit":"user"}','ca0767dc7a03989f0e0c79139edce97e0d8ea6ea9de2cc8cdd1cdb7fa02c130f','aa57cfd3085e220da81abdb25d774e2bea4151e56d44c11d0f1d177215c72f42');
INSERT INTO "audit" VALUES(4,1.79544062425415802001e+09,'officer','population.close','others',NULL,NULL,'6670a18c248add1635064857dd81fbce','{"old":{"state":"open"},"reason":"the study is over","state":"closed"}','aa57cfd3085e220da81abdb25d774e2bea4151e56d44c11d0f1d177215c72f42','7ff44b183662b4c5b401fded4d5994c792ef96052549082fb2c64e8f09690fba');
INSERT INTO "audit" VALUES(5,1.79544062426815390588e+09,'officer','token.create',NULL,NULL,NULL,'68cfd7d5d34feae95f2be607e98adc35','{"digest":"54fb30969da4b055ee3d11c9d7432f0d7f144e80f5b68000126e52ead0e77140","expires_at":null,"id":"3eb5cedee5eb","name":"page","populations":null,"scopes":["read"]}','7ff44b183662b4c5b401fded4d5994c792ef96052549082fb2c64e8f09690fba','cb5e203d9880f6be28a3a2234dfcff797a42f9bd89ef47c6f63a9032fd8a861b');
INSERT INTO "audit" VALUES(6,1.79544062427974390988e+09,'officer','token.create',NULL,NULL,NULL,'7da1a84b0f8e1a0ac610de627c5f55b6','{"digest":"042f26502e069427b65c901c7361953eb4bd42afe8b7d6994b6a738c7b09167e","expires_at":null,"id":"901d4d8273de","name":"office","populations":null,"scopes":["read","admin"]}','cb5e203d9880f6be28a3a2234dfcff797a42f9bd89ef47c6f63a9032fd8a861b','54828dd1c6ccde52c0e5cb42882333e4bcc7a5680c421fa78bb40a1f35fb4456');
INSERT INTO "audit" VALUES(7,1.7954406242915830612e+09,'officer','token.revoke',NULL,NULL,NULL,'c51811285b67378ca6fedd97920fef5e','{"id":"3eb5cedee5eb"}','54828dd1c6ccde52c0e5cb42882333e4bcc7a5680c421fa78bb40a1f35fb4456','1c528a25c70f851da2df0cfef8e5741dc3fdce0b8a6c7f28cfb9fc4f0fd0f315');
INSERT INTO "audit" VALUES(8,1.79544062431661915774e+09,'test','run.start','people','2f83ce92a716',NULL,'16ad6226d035b3e557a017de64fb129f','{"accounting":"worst-case","format":3,"key_commitment":"106713d6784de498c0afbef4550e75faa37ea13deb027ca0a824d5775f1e0452","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','1c528a25c70f851da2df0cfef8e5741dc3fdce0b8a6c7f28cfb9fc4f0fd0f315','c4b08ff0f72924ece7979d0b99a5126e0483ae23f1342e630d755ddfa9e325de');
INSERT INTO "audit" VALUES(9,1.79544062435065031055e+09,'run 2f83ce92a716','users.register','people','2f83ce92a716',NULL,'da2dd4ea4e4bfa0ad51074498e9a3f98','{"count":40,"first":0,"hashes":"7b42a5d5615fa178f031a88bb4ac189d34f1b72cf76ac8927dd9d5b17aede19b"}','c4b08ff0f72924ece7979d0b99a5126e0483ae23f1342e630d755ddfa9e325de','522a19a705a653df5799058cedc65076f534b42d35a249fd3bea02a3e67801ca');
INSERT INTO "audit" VALUES(10,1.79544062438050484658e+09,'run 2f83ce92a716','round.open','people','2f83ce92a716',0,'00582fad783afbc82b068170256a84e1','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','522a19a705a653df5799058cedc65076f534b42d35a249fd3bea02a3e67801ca','1dd39be953adad4f486a284d212ea373a3d98e412315414df4318021e88e0ecc');
INSERT INTO "audit" VALUES(11,1.79544062439984726912e+09,'run 2f83ce92a716','round.commit','people','2f83ce92a716',0,'fcac59296775c64f7b2ea93b8062f370','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','1dd39be953adad4f486a284d212ea373a3d98e412315414df4318021e88e0ecc','b6a566a6f82ac7fa238cdf9f12010608c647a058666bb974d1393499d599bfe2');
INSERT INTO "audit" VALUES(12,1.79544062443984770772e+09,'run 2f83ce92a716','round.open','people','2f83ce92a716',1,'f458679882cd4b8132a0284d923d4c5a','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','b6a566a6f82ac7fa238cdf9f12010608c647a058666bb974d1393499d599bfe2','59f0d029267e3f231472a2e2ff7844268ca45cca7acdd336981f88f9093727a8');
INSERT INTO "audit" VALUES(13,1.79544062445219874384e+09,'run 2f83ce92a716','round.commit','people','2f83ce92a716',1,'510090ab416e64e11fd95206e6d74760','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','59f0d029267e3f231472a2e2ff7844268ca45cca7acdd336981f88f9093727a8','7fac7a00ac104d1767245556835376d667944b0d55cb6ec904b0471c2cb1eb16');
INSERT INTO "audit" VALUES(14,1.79544062446646094321e+09,'run 2f83ce92a716','round.open','people','2f83ce92a716',2,'541c3596b27752b61febd3db027449b4','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','7fac7a00ac104d1767245556835376d667944b0d55cb6ec904b0471c2cb1eb16','e34e07ac8bc7ef98ddaddcd73551815898e0534188873f3d3992f70ca11acc4c');
INSERT INTO "audit" VALUES(15,1.79544062449207234379e+09,'run 2f83ce92a716','round.commit','people','2f83ce92a716',2,'4a03b6fb1cd009ad800437f45951e878','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','e34e07ac8bc7ef98ddaddcd73551815898e0534188873f3d3992f70ca11acc4c','f4fedcb44d893490aca69278419ac7ee93c0916cc9602b0ef8b6ae7195e72ddf');
INSERT INTO "audit" VALUES(16,1.79544062450369811055e+09,'2f83ce92a716','run.finish','people','2f83ce92a716',NULL,'e0923a3f31f3eb9ca5dc00a3e1d6aa02','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','f4fedcb44d893490aca69278419ac7ee93c0916cc9602b0ef8b6ae7195e72ddf','314e7c5b1e06f541fa2965da66b273dea6e381063474342599cec03ca4e9cbae');
INSERT INTO "audit" VALUES(17,1.79544062452938365942e+09,'test','run.start','people','2b841f084eae',NULL,'9592615f35b13376f4e55cd02b59b4f6','{"accounting":"individual","format":3,"key_commitment":"2f381babe11c2a6f3413bb271727a129b74af9d619ea8dc27e788f3b97a855ed","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','314e7c5b1e06f541fa2965da66b273dea6e381063474342599cec03ca4e9cbae','a6c46e9a378f9af04cb2f4fe27d2f80ecabab532349212af21d65036ade04350');
INSERT INTO "audit" VALUES(18,1.79544062456221413612e+09,'run 2b841f084eae','round.open','people','2b841f084eae',0,'d344ad3159af5fe6387fb84dcfc277e8','{"attempt":0,"cohort":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","cohort_size":2,"noise_row":0}','a6c46e9a378f9af04cb2f4fe27d2f80ecabab532349212af21d65036ade04350','4cbcf3cc41dbf1c415bc3c89a0ae4af12482bd817abeef4dae55bd8f12113a8f');
INSERT INTO "audit" VALUES(19,1.79544062459224057198e+09,'run 2b841f084eae','round.commit','people','2b841f084eae',0,'d591ecc3990e29e06ed01da676031498','{"attempt":0,"charges":"a33bb6dd8b956e03fa884326928a085e8ec24f13405fc7c28bb2432bf65cd97a","checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":0.8341175486240524,"noise_row":0,"nonce":"07070707070707070707070707070707","participant_count":2,"participants":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','4cbcf3cc41dbf1c415bc3c89a0ae4af12482bd817abeef4dae55bd8f12113a8f','d6822a84b473f7c920880076a520ab6369ecddb5d430df22035264d1fea7e1a6');
INSERT INTO "audit" VALUES(20,1.79544062460368061069e+09,'2b841f084eae','run.finish','people','2b841f084eae',NULL,'2c5d2cb8e7d2e2b7d3be113c5e61c512','{"message":"","odometers":"e03f481ac5ab3e9f5dd1c7fd6e441ad85d92d26921284e747ad913d2e9155685","settled":"{\"mu_squared\":0.12000000000000001,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','d6822a84b473f7c920880076a520ab6369ecddb5d430df22035264d1fea7e1a6','77c69b45196b95da8605a38bb9db7ff37b5dd72abf185ecdc91777a57fa568f0');
INSERT INTO "audit" VALUES(21,1795440624.6644,'test','run.start','people','3bb84c582465',NULL,'65fb3097e30a9ab1f6c493b829944e80','{"accounting":"individual","format":3,"key_commitment":"b3d883911bcdb1917da2a4c385b2c042df56437d2033f9b4376e6d9b496e769c","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','77c69b45196b95da8605a38bb9db7ff37b5dd72abf185ecdc91777a57fa568f0','96fd98d8659aa870b7110acf5a0deb4e5e9ef2f7e022c40edaafd9c92048deda');
INSERT INTO "audit" VALUES(22,1.7954406246773822308e+09,'run 3bb84c582465','round.open','people','3bb84c582465',0,'01fd344e91a094b2ba53c79bca94cbc0','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','96fd98d8659aa870b7110acf5a0deb4e5e9ef2f7e022c40edaafd9c92048deda','6dba04a65b9fcb5d9222d0996bfe55112306f5c57031a5d3f28637da59024032');
INSERT INTO "audit" VALUES(23,1.79544062469203543662e+09,'run 3bb84c582465','round.commit','people','3bb84c582465',0,'d6521d042bbbdc1428a9029fbf5329f5','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":0.8341175486240524,"noise_row":0,"nonce":"08080808080808080808080808080808","participant_count":1,"participants":"47950c6e83377475598396d9602df2b18438d1e1193c2ddf095c2e5645f24a43","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','6dba04a65b9fcb5d9222d0996bfe55112306f5c57031a5d3f28637da59024032','91e96b1c8848bc93cac3e9e5ae20aee9d2c61da1b98ef96856f844c664e642d7');
INSERT INTO "audit" VALUES(24,1.79544062471242070197e+09,'3bb84c582465','run.finish','people','3bb84c582465',NULL,'9b6dd0d909b740d3b6daca49f4b0c986','{"message":"","odometers":"dac4627d9fd7eb37f49d50ff28f5f8191c3b588d2dc8c314ade1cab1bdc0c992","settled":"{\"mu_squared\":0.16000000000000003,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','91e96b1c8848bc93cac3e9e5ae20aee9d2c61da1b98ef96856f844c664e642d7','fd3a2ae668394af9f3ceef3a532cf8cd30d85ba113581c291ea140a9704a2f54');
INSERT INTO "audit" VALUES(25,1.79544062476157236102e+09,'trainer','charge.reserve','people',NULL,NULL,'07ad04e4d77ba305ec4f78d530801a3f','{"key":"dp-sgd-1","largest":137438953472,"loss":"{\"mu\":0.1}","price":"{\"leak\":0.0,\"mu_squared\":0.010000000000000002}","what":"ranker","who":"trainer","why":"weekly"}','fd3a2ae668394af9f3ceef3a532cf8cd30d85ba113581c291ea140a9704a2f54','53dac3c3dc05241dcb146d7a21f8a8abcea11b249351e97d523a9fdefb3a16e6');
INSERT INTO "audit" VALUES(26,1.79544062478857755667e+09,'trainer','charge.commit','people',NULL,NULL,'6c2878cdfe622824fe45ab5e34500ecc','{"key":"dp-sgd-1"}','53dac3c3dc05241dcb146d7a21f8a8abcea11b249351e97d523a9fdefb3a16e6','03e2068ac25ae8d3fa66ee0ae2bb345948890b7ead1c86e67401f78cda170238');
INSERT INTO "audit" VALUES(27,1.79544062484575843809e+09,'trainer','charge.reserve','people',NULL,NULL,'de87ff25debf09b74befb6b9db32583f','{"key":"dp-sgd-2","largest":137438953472,"loss":"{\"rho\":0.001}","price":"{\"leak\":0.0,\"mu_squared\":0.0037183309503531843}","what":"ranker","who":"trainer","why":"weekly"}','03e2068ac25ae8d3fa66ee0ae2bb345948890b7ead1c86e67401f78cda170238','c450ce89c2f0118a51ce7f56df3412f25807691a11b26870d327df92704c6736');
INSERT INTO "audit" VALUES(28,1.79544062488611030578e+09,'test','run.start','people','a18deee13541',NULL,'b20327208c264a01ab725921cf5dbd1a','{"accounting":"individual","format":3,"key_commitment":"b85dfbcaee0377b7b00d3635b1198eee28c83818fdbe588cbdeee67ecfeb09bb","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','c450ce89c2f0118a51ce7f56df3412f25807691a11b26870d327df92704c6736','dcc15d1395fc15c326d4dcf9fed25db6de8441dd063239df0285288e0f7d6db5');
INSERT INTO "audit" VALUES(29,1795440624.92638,'run a18deee13541','round.open','people','a18deee13541',0,'54fe4f0ffb93c51686a281ca410fbf7e','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','dcc15d1395fc15c326d4dcf9fed25db6de8441dd063239df0285288e0f7d6db5','c4ea2333114ebb73bc5b0c39008e994c7202ddb79040053691581d99bd60a438');
INSERT INTO "audit" VALUES(30,1.79544062493767762186e+09,'run a18deee13541','round.commit','people','a18deee13541',0,'ec869055bcc0d0289554abcd6199139e','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce","epsilon":0.8341175486240524,"noise_row":0,"nonce":"06060606060606060606060606060606","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','c4ea2333114ebb73bc5b0c39008e994c7202ddb79040053691581d99bd60a438','ac720febd048790597a3e42e0ec2931959233b846f5610aa29dcd2a6028b59d7');
INSERT INTO "audit" VALUES(31,1.79544062496400666237e+09,'run a18deee13541','run.interrupt','people','a18deee13541',NULL,'faec4c01bb595a86aecef2c754bfeb4b','{"message":""}','ac720febd048790597a3e42e0ec2931959233b846f5610aa29dcd2a6028b59d7','bb263220650bb527a5c443648ccecc8962c0dbd60f50522fb6acfea428621c14');
INSERT INTO "audit" VALUES(32,1.79544062498878669734e+09,'test','run.start','people','4857f92a306e',NULL,'ec62195911e4e4e4b8543d47669a78b4','{"accounting":"worst-case","format":3,"key_commitment":"9bd105d2d5cb734f770c970045004021a4d74b302ff511c1c17dce8ee46a4d7c","largest":412316860416,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','bb263220650bb527a5c443648ccecc8962c0dbd60f50522fb6acfea428621c14','5eb59cec89c2ddf05c305a31a7847d83bb7861c07ad21a7086e198938caeca62');
INSERT INTO "audit" VALUES(33,1.79544062500090384482e+09,'run 4857f92a306e','round.open','people','4857f92a306e',0,'d2f93a4f51d2d1753368f205e124ec15','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','5eb59cec89c2ddf05c305a31a7847d83bb7861c07ad21a7086e198938caeca62','39fbf412ad0f92774392c4d7836aaf9da9e016c1164e9ee36eef9a0b6a672141');
INSERT INTO "audit" VALUES(34,1.79544062501566123969e+09,'run 4857f92a306e','round.void','people','4857f92a306e',0,'dbb87416cf661a7a54f274eb25a90420','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','39fbf412ad0f92774392c4d7836aaf9da9e016c1164e9ee36eef9a0b6a672141','ac66b6f33c80076ae7feaf28befeff4c9b4f585c6143b4e6875a67fd46f7d2be');
INSERT INTO "audit" VALUES(35,1.79544062502370953566e+09,'run 4857f92a306e','round.open','people','4857f92a306e',0,'726dc0a55041ff3a8b5170ca8ed4346a','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','ac66b6f33c80076ae7feaf28befeff4c9b4f585c6143b4e6875a67fd46f7d2be','c729f4cebfdbcd55929004f048ce95fa2036bf12df37f489d6e5dc5fac38aaf9');
INSERT INTO "audit" VALUES(36,1.79544062503218531607e+09,'run 4857f92a306e','round.commit','people','4857f92a306e',0,'849077037a1639f672340be871bc5799','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','c729f4cebfdbcd55929004f048ce95fa2036bf12df37f489d6e5dc5fac38aaf9','7630d44f0215545c9c5ebe6ec0572761b24ac1132b82cc09f006d8ce058b8091');
INSERT INTO "audit" VALUES(37,1.79544062505305385591e+09,'run 4857f92a306e','users.register','people','4857f92a306e',NULL,'5aca941b894236e786716af26edff315','{"count":10,"first":40,"hashes":"2d9e392658e1c213e3299cbffb8175fddbff33f74bdffcd912abe75e3a89d2e5","pledged":{"a18deee13541":274877906944}}','7630d44f0215545c9c5ebe6ec0572761b24ac1132b82cc09f006d8ce058b8091','7b0dc134977f40242e98f19582fef2bfdb0c75f85022c5f6ba7b8dad1e134cbb');
INSERT INTO "audit" VALUES(38,1.79544062506844305992e+09,'run 4857f92a306e','round.open','people','4857f92a306e',1,'5cace7d8d8ef166bbf83c7c575b10b3b','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','7b0dc134977f40242e98f19582fef2bfdb0c75f85022c5f6ba7b8dad1e134cbb','cde935de7406c87aa0a84a865112376964b0bac0333411a9b2b69ff099d6ed02');
INSERT INTO "audit" VALUES(39,1.79544062507803177828e+09,'officer','population.create','secret',NULL,NULL,'43c5104b53496afba1eefbd689b76dee','{"accounting":"worst-case","adjacency":"add_remove","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-05,"epsilon":8.0,"leak":1.0000000000000002e-06,"reservation_seconds":null,"salt":"b12e91ae3f62989a67227f38354e0baf6f0869d5f4e4c359890d8079189af7c6","simulated":false,"two_persons":false,"unit":"user"}','cde935de7406c87aa0a84a865112376964b0bac0333411a9b2b69ff099d6ed02','2b74ab6d731a40656d75ceaadf4b67224048bf572ea797a743ae3f6abeafd1d0');
INSERT INTO "audit" VALUES(40,1.79544062663796019554e+09,'test','run.start','secret','0550f449e27f',NULL,'b460c64b2a1944880d64f41174779f94','{"accounting":"worst-case","format":3,"key_commitment":"798a5d1aac9eda4ecce59f572c05365366146e844519b089a98d23178b18ed7a","most":null,"noise_source":"secure","plan":"25d956277da285ce5ff1eedacfcb5be3e46cf98dcad9cc1d0a09f793ab52cd70","plan_digest":"25d956277da285ce5ff1eedacfcb5be3e46cf98dcad9cc1d0a09f793ab52cd70","planned":"{\"mu_squared\":0.0,\"sampled\":[[0.05,2.0,3]]}","price":"{\"leak\":1e-07,\"mu_squared\":0.007437336250795522}","rounds":4,"strategy":null,"trust_node_ids":false}','2b74ab6d731a40656d75ceaadf4b67224048bf572ea797a743ae3f6abeafd1d0','6656f2a3a3c5bbb410850340ba7b73e706b7c2fdf8bdb69b807cc40b9fc3114e');
INSERT INTO "audit" VALUES(41,1.79544062663796019554e+09,'run 0550f449e27f','users.register','secret','0550f449e27f',NULL,'67f72da94e56242d0dc50ff580a45326','{"blind":"fbe57c576cf18cf769f953286eea8f65","count":30,"first":0,"hashes":"07413aedb7c9729665ab92ed7c00a10f6fd887a659b1cbf7d71aacec014f948f"}','6656f2a3a3c5bbb410850340ba7b73e706b7c2fdf8bdb69b807cc40b9fc3114e','2bdd205b65c397a444b7d64534878fff88531d314a9c75802e4d405a61d2bd58');
INSERT INTO "audit" VALUES(42,1.79544062663796019554e+09,'run 0550f449e27f','round.open','secret','0550f449e27f',0,'03a298fd7a9d35221a4ec3dcd87d4390','{"attempt":0,"blind":"a2a6e604cb4f3c95bcb362b8f7dd3602","cohort":"17a747f744bf89df9c32388354bb5fb2584547f3c52dad71ad8595e6e44c05e2","cohort_size":3,"noise_row":0}','2bdd205b65c397a444b7d64534878fff88531d314a9c75802e4d405a61d2bd58','9840ca2b722562affedfefa804ddfcbbca5392f5e6321150eff8914ce474ca77');
INSERT INTO "audit" VALUES(43,1.79544062663796019554e+09,'run 0550f449e27f','round.commit','secret','0550f449e27f',0,'388fcc9b15a87d98205047ed6352964d','{"attempt":0,"blind":"434d5e430fc2207a547e179a4b91f866","checkpoint":"ec18eac8d758b1eba52d3c10d39adc6dd9806472cb4ae069635d383d9086a513","epsilon":0.1804475474266375,"noise_row":0,"nonce":"28282828282828282828282828282828","participant_count":3,"participants":"17a747f744bf89df9c32388354bb5fb2584547f3c52dad71ad8595e6e44c05e2","rejects":{},"reports":3,"spent":"{\"mu_squared\":0.0,\"sampled\":[[0.05,2.0,1]]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','9840ca2b722562affedfefa804ddfcbbca5392f5e6321150eff8914ce474ca77','3cf4b4d2709d7298f684f694cb7ada7f242c0ff5b0b6f9e164f3518507c237ff');
INSERT INTO "audit" VALUES(44,1.79544062663796019554e+09,'run 0550f449e27f','round.open','secret','0550f449e27f',1,'ceac208412d1d8c07899d5d0ff2cf6dd','{"attempt":0,"blind":"75caf86dec8d0011400bff0a946d8179","cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','3cf4b4d2709d7298f684f694cb7ada7f242c0ff5b0b6f9e164f3518507c237ff','1a6bc4a3bb06d51d6247041397fd39a30b8b5cf5a45d9819ef8a2263312b2fef');
INSERT INTO "audit" VALUES(45,1.79544062663796019554e+09,'run 0550f449e27f','round.commit','secret','0550f449e27f',1,'50f553aee5747eb4c059ce316541561b','{"attempt":0,"blind":"285cb168c2b2bbf07103df9e050c57b3","checkpoint":"e8bc163c82eee18733288c7d4ac636db3a6deb013ef2d37b68322be20edc45cc","epsilon":0.21978123329451935,"noise_row":1,"nonce":"29292929292929292929292929292929","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{},"reports":2,"spent":"{\"mu_squared\":0.0,\"sampled\":[[0.05,2.0,2]]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','1a6bc4a3bb06d51d6247041397fd39a30b8b5cf5a45d9819ef8a2263312b2fef','8b1d353134b1de47d16fd7b39675f73e023fb2a487b3ccda24edac3243c4acd3');
INSERT INTO "audit" VALUES(46,1.79544062663796019554e+09,'run 0550f449e27f','round.open','secret','0550f449e27f',2,'e4955304c55eea4e2662d82cc1ab540b','{"attempt":0,"blind":"8c623806bbc1fa9e11b4fb3fe4987db3","cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":2}','8b1d353134b1de47d16fd7b39675f73e023fb2a487b3ccda24edac3243c4acd3','1250eb2bc0de6c3fc2a31145abb9c028b0ae2a07141345e411717a11bbcef67b');
INSERT INTO "audit" VALUES(47,1.79544062663796019554e+09,'run 0550f449e27f','round.void','secret','0550f449e27f',2,'08c3132ff5ec997b4d3ae4970f823bd9','{"attempt":0,"blind":"58a4bd7742110be29dea2cbb4e4354b5","reason":"too few","rejects":{"shape":1},"reports":1}','1250eb2bc0de6c3fc2a31145abb9c028b0ae2a07141345e411717a11bbcef67b','165798ec007b595028b683546790734e6400b46493f15cc1bd4274241acb0041');
INSERT INTO "audit" VALUES(48,1.79544062663796019554e+09,'run 0550f449e27f','round.open','secret','0550f449e27f',2,'942abca23d4b6907df9e8db9a9773e30','{"attempt":1,"blind":"d9246d7f620de415f85f862a035e742e","cohort":"fb2a03218bd3f23f8782c26ec4be63dde6f6fad3d4dd696ac36c38bfdadafe15","cohort_size":1,"noise_row":2}','165798ec007b595028b683546790734e6400b46493f15cc1bd4274241acb0041','252e270e3950dfff2fec27168991408b807c7bbaf183ea81a7ac413ce9e2fb56');
CREATE TABLE charges (
	population_id INTEGER NOT NULL, 
	"key" VARCHAR(100) NOT NULL, 
	who VARCHAR(200) NOT NULL, 
	what VARCHAR(200) NOT NULL, 
	why TEXT NOT NULL, 
	loss TEXT NOT NULL, 
	price TEXT NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	reserved_at DOUBLE NOT NULL, 
	closed_at DOUBLE, 
	CONSTRAINT pk_charges PRIMARY KEY (population_id, "key"), 
	CONSTRAINT fk_charges_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "charges" VALUES(1,'dp-sgd-1','trainer','ranker','weekly','{"mu":0.1}','{"leak":0.0,"mu_squared":0.010000000000000002}','committed',1.79544062476157236102e+09,1.79544062478857755667e+09);
INSERT INTO "charges" VALUES(1,'dp-sgd-2','trainer','ranker','weekly','{"rho":0.001}','{"leak":0.0,"mu_squared":0.0037183309503531843}','reserved',1.79544062484575843809e+09,NULL);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, signed TEXT, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'5cbaa03152390f195ccb7c4b31a13ea2',48,'252e270e3950dfff2fec27168991408b807c7bbaf183ea81a7ac413ce9e2fb56',NULL);
CREATE TABLE leases (
	run_seq INTEGER NOT NULL, 
	holder VARCHAR(300) NOT NULL, 
	token BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	renewed_at DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (run_seq), 
	CONSTRAINT fk_leases_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "leases" VALUES(1,'',2,8,1.79544062450369811055e+09,30.0);
INSERT INTO "leases" VALUES(2,'',2,3,1.79544062460368061069e+09,30.0);
INSERT INTO "leases" VALUES(3,'',2,3,1.79544062471242070197e+09,30.0);
INSERT INTO "leases" VALUES(4,'',2,3,1.79544062496400666237e+09,30.0);
INSERT INTO "leases" VALUES(5,'test',1,6,1.79544062506844305992e+09,30.0);
INSERT INTO "leases" VALUES(6,'test',1,8,1.79544062676447486875e+09,30.0);
CREATE TABLE odometers (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	spent BLOB NOT NULL, 
	CONSTRAINT pk_odometers PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_odometers_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "odometers" VALUES(1,0,40,X'0178016360C00D14A052301AA6129D0F131F8934006AC00061');
CREATE TABLE participations (
	round_id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	users BLOB NOT NULL, charges BLOB, 
	CONSTRAINT pk_participations PRIMARY KEY (round_id), 
	CONSTRAINT fk_participations_round_id FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT fk_participations_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_participations_run_seq_index UNIQUE (run_seq, "index")
);
INSERT INTO "participations" VALUES(1,1,0,3,X'0178DA636064040000060003',NULL);
INSERT INTO "participations" VALUES(2,1,1,2,X'0178DA6362040000070004',NULL);
INSERT INTO "participations" VALUES(3,1,2,1,X'0178DA63010000050005',NULL);
INSERT INTO "participations" VALUES(4,2,0,2,X'0178DA6366040000090005',X'01780163606060500062105000620002100041');
INSERT INTO "participations" VALUES(5,3,0,1,X'0178DA63030000070007',X'017801636060605000620000880021');
INSERT INTO "participations" VALUES(6,4,0,1,X'0178DA63010000050005',X'017801636060605000620000880021');
INSERT INTO "participations" VALUES(8,5,0,1,X'0178DA63050000060006',NULL);
INSERT INTO "participations" VALUES(10,6,0,3,X'0178DA63646605000011000A',NULL);
INSERT INTO "participations" VALUES(11,6,1,2,X'0178DA6362040000070004',NULL);
CREATE TABLE pledges (
	run_seq INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	caps BLOB NOT NULL, 
	CONSTRAINT pk_pledges PRIMARY KEY (run_seq, first), 
	CONSTRAINT fk_pledges_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "pledges" VALUES(4,0,40,X'0178016360606070006210700093A33429E10000419A0A01');
INSERT INTO "pledges" VALUES(4,40,10,X'017801636060607000621070009394D10064500281');
CREATE TABLE populations (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	adjacency VARCHAR(20) NOT NULL, 
	unit VARCHAR(100) NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	salt BLOB NOT NULL, 
	users BIGINT NOT NULL, 
	settled TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, bound_epsilon DOUBLE DEFAULT '0' NOT NULL, bound_delta DOUBLE DEFAULT '0' NOT NULL, ceiling_epsilon DOUBLE, ceiling_delta DOUBLE, reservation_seconds DOUBLE, two_persons BOOLEAN DEFAULT 0 NOT NULL, accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'0CFFCA9EB7E77CCA990D2B0588B6ECCD',50,'{"mu_squared":0.16000000000000003,"sampled":[]}',1.79544062402012348173e+09,'officer',8.67361737988403508001e-25,5.0,1.0e-06,NULL,NULL,NULL,0,'individual');
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'5368A66D6E53B3A567C2E26F3F123936',0,'{"mu_squared":0.0,"sampled":[]}',1.7954406242349739075e+09,'officer',1.0e-07,1.0,1.0e-06,NULL,NULL,NULL,0,'worst-case');
INSERT INTO "populations" VALUES(3,'secret',8.0,1.0e-05,'add_remove','user',0,'open',X'F3BDE32FE460AE56206C75ABF92DBC6F',30,'{"mu_squared":0.0,"sampled":[]}',1.79544062507803177828e+09,'officer',1.00000000000000016653e-06,8.0,1.0e-05,NULL,NULL,NULL,0,'worst-case');
CREATE TABLE proposals (
	id VARCHAR(20) NOT NULL, 
	population_id INTEGER NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	reason TEXT NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	proposed_at DOUBLE NOT NULL, 
	proposed_by VARCHAR(200) NOT NULL, 
	person VARCHAR(200) NOT NULL, 
	decided_at DOUBLE, 
	decided_by VARCHAR(200), 
	CONSTRAINT pk_proposals PRIMARY KEY (id), 
	CONSTRAINT fk_proposals_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
CREATE TABLE rounds (
	id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	noise_row INTEGER NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	cohort BLOB, 
	cohort_size INTEGER NOT NULL, 
	reports INTEGER NOT NULL, 
	participants INTEGER NOT NULL, 
	spent TEXT, 
	epsilon DOUBLE, 
	checkpoint VARCHAR(64), 
	statistics TEXT NOT NULL, 
	rejects TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	opened_at DOUBLE NOT NULL, 
	closed_at DOUBLE, nonce VARCHAR(32), 
	CONSTRAINT pk_rounds PRIMARY KEY (id), 
	CONSTRAINT fk_rounds_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_rounds_run_seq_index_attempt UNIQUE (run_seq, "index", attempt)
);
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79544062438050484658e+09,1.79544062439984726912e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79544062443984770772e+09,1.79544062445219874384e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79544062446646094321e+09,1.79544062449207234379e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'committed',NULL,2,0,2,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{}','{}','',1.79544062456221413612e+09,1.79544062459224057198e+09,'07070707070707070707070707070707');
INSERT INTO "rounds" VALUES(5,3,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{}','{}','',1.7954406246773822308e+09,1.79544062469203543662e+09,'08080808080808080808080808080808');
INSERT INTO "rounds" VALUES(6,4,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce','{}','{}','',1795440624.92638,1.79544062493767762186e+09,'06060606060606060606060606060606');
INSERT INTO "rounds" VALUES(7,5,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79544062500090384482e+09,1.79544062501566123969e+09,NULL);
INSERT INTO "rounds" VALUES(8,5,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79544062502370953566e+09,1.79544062503218531607e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(9,5,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79544062506844305992e+09,NULL,NULL);
INSERT INTO "rounds" VALUES(10,6,0,0,0,'committed',NULL,3,3,3,'{"mu_squared":0.0,"sampled":[[0.05,2.0,1]]}',1.80447547426637489031e-01,'ec18eac8d758b1eba52d3c10d39adc6dd9806472cb4ae069635d383d9086a513','{}','{}','',1.79544062663796019554e+09,1.79544062663796019554e+09,'28282828282828282828282828282828');
INSERT INTO "rounds" VALUES(11,6,1,0,1,'committed',NULL,2,2,2,'{"mu_squared":0.0,"sampled":[[0.05,2.0,2]]}',2.19781233294519345866e-01,'e8bc163c82eee18733288c7d4ac636db3a6deb013ef2d37b68322be20edc45cc','{}','{}','',1.79544062663796019554e+09,1.79544062663796019554e+09,'29292929292929292929292929292929');
INSERT INTO "rounds" VALUES(12,6,2,0,2,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":1}','too few',1.79544062663796019554e+09,1.79544062663796019554e+09,NULL);
INSERT INTO "rounds" VALUES(13,6,2,1,2,'open',X'0178DA63070000080008',1,0,0,NULL,NULL,NULL,'{}','{}','',1.79544062663796019554e+09,NULL,NULL);
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	population_id INTEGER NOT NULL, 
	"plan" TEXT NOT NULL, 
	plan_digest VARCHAR(128) NOT NULL, 
	rounds INTEGER NOT NULL, 
	planned TEXT NOT NULL, 
	spent TEXT NOT NULL, 
	noise_source VARCHAR(40) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	trust_node_ids BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	request VARCHAR(20), 
	message TEXT NOT NULL, 
	next_round INTEGER NOT NULL, 
	checkpoint VARCHAR(64), 
	started_at DOUBLE NOT NULL, 
	started_by VARCHAR(200) NOT NULL, 
	ended_at DOUBLE, price TEXT, format INTEGER DEFAULT '0' NOT NULL, strategy VARCHAR(64), accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, most BIGINT, 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'2f83ce92a716',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','106713d6784de498c0afbef4550e75faa37ea13deb027ca0a824d5775f1e0452',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79544062431661915774e+09,'test',1.79544062450369811055e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',3,NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(2,'2b841f084eae',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','2f381babe11c2a6f3413bb271727a129b74af9d619ea8dc27e788f3b97a855ed',0,'stopped',NULL,'',1,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b',1.79544062452938365942e+09,'test',1.79544062460368061069e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',3,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(3,'3bb84c582465',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','b3d883911bcdb1917da2a4c385b2c042df56437d2033f9b4376e6d9b496e769c',0,'stopped',NULL,'',1,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1795440624.6644,'test',1.79544062471242070197e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',3,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(4,'a18deee13541',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','b85dfbcaee0377b7b00d3635b1198eee28c83818fdbe588cbdeee67ecfeb09bb',0,'interrupted',NULL,'',1,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce',1.79544062488611030578e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',3,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(5,'4857f92a306e',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','9bd105d2d5cb734f770c970045004021a4d74b302ff511c1c17dce8ee46a4d7c',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79544062498878669734e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',3,NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(6,'0550f449e27f',3,'{"privacy":{"adjacency":"add_remove"},"run":{"round_seconds":60,"rounds":3}}','25d956277da285ce5ff1eedacfcb5be3e46cf98dcad9cc1d0a09f793ab52cd70',4,'{"mu_squared":0.0,"sampled":[[0.05,2.0,3]]}','{"mu_squared":0.0,"sampled":[[0.05,2.0,2]]}','secure','798a5d1aac9eda4ecce59f572c05365366146e844519b089a98d23178b18ed7a',0,'running',NULL,'',2,'e8bc163c82eee18733288c7d4ac636db3a6deb013ef2d37b68322be20edc45cc',1.79544062663796019554e+09,'test',NULL,'{"leak":1e-07,"mu_squared":0.007437336250795522}',3,NULL,'worst-case',NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, populations TEXT, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('3eb5cedee5eb','page','54fb30969da4b055ee3d11c9d7432f0d7f144e80f5b68000126e52ead0e77140','read',1.79544062426815390588e+09,'officer',NULL,1.7954406242915830612e+09,NULL);
INSERT INTO "tokens" VALUES('901d4d8273de','office','042f26502e069427b65c901c7361953eb4bd42afe8b7d6994b6a738c7b09167e','read admin',1.79544062427974390988e+09,'officer',NULL,NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'D064114BAAE83D1E08DB800836457F2239588E718C0EC69FE4A826BC83142AC5D14602E6790740848AE2C02F7DC9133C2CB27922D12594CC793096A07EE11A53C57B92366399038D0B18C9E24BBC75EB035952BA773FAFCA9DB9394FA68BB348D514E516E57EA513920D94FF4E8EE3A1CF93E37D069DE8B011B8A6642D3A5FA8D32AA3CA7413710A86045082A6E6F7464C787A2BB0D7B37F0F5EA8C0DB474EA68E8FF958F48CA3DB0ADC19BBF0903BF74C2AD6CAA358E21CE826ACCA9262BA315CE5A39C4C3553CB93B44D6EC57BA31417CD44CC65ABAFE80BCEE0A06406287959756F5BC3F1A6851E19959C872F594BED81A0D29FA4E495FB4B401B5DAFCECFC571CDEDA5523234362A29DBBDA852AD0E241B4B491C82104700263A0A5AA07B34B22DD0404EAC6E95190DC1FA383FC8F407A28EC8C46B8D9CE2DD583D07F117');
INSERT INTO "users" VALUES(1,40,10,X'6970726E16F980B94DA21BF901C71509400DD1C4B5E28017F2FC974AEE5F9F4AB6931786AF899E61641069697521B9868FC831C4F56A2A89F62780D5305BBBE9B0711314990451AFD4068D8F4EBFAEA5');
INSERT INTO "users" VALUES(3,0,30,X'D33BBCD041505FA016002437C66B931A47A5D08CA1F4AD14412632BC3E5F126DF054D2BD4BA5716E8DE131C8FB3F0F9DA7409CF3A8A23E9A123897979E60F73326BB8992F2880BA7CFB0857E65005A5131F68503904EB750063BC21457F97F5929AAF81123AE5585267584D95547D00A9D105F39EBC161CE18B6450316E5D3280C17564D6EC2DE0D28873562533D1207709641F6FE11D56BAB61096389F071645677E0FA839B6D4168409ACF9D7224B39F7E8C60A99B8B2F74CE1F58BBCED3477843EB03688E32C2138465AAD8C3ECF453DF4028578D02CC8E34AD2D8208D8F55D44E28AFBE5C3703DEDF1B580ABEF80');
CREATE INDEX ix_audit_population ON audit (population);
CREATE INDEX ix_audit_run ON audit (run);
CREATE INDEX ix_runs_population_id_state ON runs (population_id, state);
CREATE UNIQUE INDEX uq_runs_key ON runs (key_commitment) WHERE noise_source <> 'seeded';
CREATE UNIQUE INDEX uq_rounds_committed_noise_row ON rounds (run_seq, noise_row) WHERE state = 'committed';
CREATE UNIQUE INDEX uq_rounds_one_open ON rounds (run_seq) WHERE state = 'open';
CREATE TRIGGER audit_append BEFORE INSERT ON audit WHEN NEW.id <> (SELECT count FROM head) + 1 BEGIN SELECT RAISE(ABORT, 'the audit log only grows at its end'); END;
CREATE TRIGGER audit_keep BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stay BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count <> OLD.count + 1 BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER head_stay BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER rounds_keep BEFORE UPDATE ON rounds WHEN OLD.state <> 'open' BEGIN SELECT RAISE(ABORT, 'a closed round does not change'); END;
CREATE TRIGGER rounds_stay BEFORE DELETE ON rounds BEGIN SELECT RAISE(ABORT, 'rounds are not removed'); END;
CREATE TRIGGER participations_stay BEFORE DELETE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER users_keep BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE TRIGGER users_stay BEFORE DELETE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE UNIQUE INDEX uq_rounds_nonce ON rounds (nonce);
CREATE INDEX ix_audit_tokens ON audit (id) WHERE action IN ('token.create', 'token.revoke');
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations WHEN OLD.charges IS NOT NULL OR NEW."round_id" <> OLD."round_id" OR NEW."run_seq" <> OLD."run_seq" OR NEW."index" <> OLD."index" OR NEW."count" <> OLD."count" OR NEW."users" <> OLD."users" BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
COMMIT;
