BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0005');
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
INSERT INTO "audit" VALUES(1,1.79544063609812092779e+09,'officer','population.create','people',NULL,NULL,'ca6a36b1396eebf100f60822e3ededb7','{"accounting":"individual","adjacency":"zero_out","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"reservation_seconds":null,"salt":"4668238b763bed962fc7e019d7be6131c17b0e5c2f1295cce353648171d98f17","simulated":false,"two_persons":false,"unit":"user"}','38837f445f28ed5e9a32c96b78582e6d5d4dbb45509393d902f31b0c3697d4dd','8944ef79735781bbe28706d77b88d4af377f4fb5d44cac9053c29e0204efda90');
INSERT INTO "audit" VALUES(2,1.79544063630035877232e+09,'officer','population.raise','people',NULL,NULL,'dd9c7214d3dae50ca87e27674c619562','{"delta":1e-06,"epsilon":5.0,"old":{"delta":1e-06,"epsilon":4.0},"reason":"agreed on 3 May"}','8944ef79735781bbe28706d77b88d4af377f4fb5d44cac9053c29e0204efda90','66602a08da471fa8c463cac2a0f2727a93631ffbc3f9ff652ca08696dbf75961');
INSERT INTO "audit" VALUES(3,1.79544063631698203086e+09,'officer','population.create','others',NULL,NULL,'8ab2bb73daa77f7e4d7c5ebc75dd268a','{"accounting":"worst-case","adjacency":"add_remove","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":1.0,"leak":1e-07,"reservation_seconds":null,"salt":"781cad0d3a5bda2b6594788ccf27b62fcf72be7801d400a8f9eb00a963767f67","simulated":false,"two_persons":false,"unit":"user"}','66602a08da471fa8c463cac2a0f2727a93631ffbc3f9ff652ca08696dbf75961','915f7120235de0ba4aece0d1f68042c474753d796ee48e99c30f4a5aa77f28d3');
INSERT INTO "audit" VALUES(4,1.79544063633496713636e+09,'officer','population.close','others',NULL,NULL,'7d55955738cd4f5cf5dac55301870ede','{"old":{"state":"open"},"reason":"the study is over","state":"closed"}','915f7120235de0ba4aece0d1f68042c474753d796ee48e99c30f4a5aa77f28d3','83e34c503ea2676acc029d5bba7a7058b0f4418d45dcaac8384838a052f66804');
INSERT INTO "audit" VALUES(5,1.795440636348402977e+09,'officer','token.create',NULL,NULL,NULL,'4e67f47888e5cb3ad1f5adfb56e0a75a','{"digest":"bbd80a071cc15964150ea78ed1ca3f48bea16bf4833e2b84198b7e78803dda44","expires_at":null,"id":"f93cecc8ff3f","name":"page","populations":null,"scopes":["read"]}','83e34c503ea2676acc029d5bba7a7058b0f4418d45dcaac8384838a052f66804','fb39d1cc3dffb8301560805d716aac08bf4ed6a398b89b5fb9ceaf92da06d8e6');
INSERT INTO "audit" VALUES(6,1.7954406363638656139e+09,'officer','token.create',NULL,NULL,NULL,'bdb33f513b1267ac288016432e781def','{"digest":"5ec53d206222464593cbdd96016a47561b5e44eaeb6f53f315e5cbb0ba27937a","expires_at":null,"id":"f5e91ad5765e","name":"office","populations":null,"scopes":["read","admin"]}','fb39d1cc3dffb8301560805d716aac08bf4ed6a398b89b5fb9ceaf92da06d8e6','2cb9a6dce2a686d523d40c38c425091e3158c043021c219c5e8e4ec910ea9b84');
INSERT INTO "audit" VALUES(7,1.79544063637163138396e+09,'officer','token.revoke',NULL,NULL,NULL,'782fdfe2e315112d5655c542e19306fa','{"id":"f93cecc8ff3f"}','2cb9a6dce2a686d523d40c38c425091e3158c043021c219c5e8e4ec910ea9b84','e03806762163d5880eaf4d97acc2610d27a8132302db759f18ee70a0f9869489');
INSERT INTO "audit" VALUES(8,1.79544063639765214923e+09,'test','run.start','people','f467f30fbb83',NULL,'56419deefd02f93818e55c05da8b8215','{"accounting":"worst-case","format":3,"key_commitment":"27d471e7e985868684fc9addb4320374c09c1601ef87c535e32fdd897beb7f1f","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','e03806762163d5880eaf4d97acc2610d27a8132302db759f18ee70a0f9869489','8970012e5a3ba68cf38025b8f4e0efe228c3814205f991f36695173c35d6c235');
INSERT INTO "audit" VALUES(9,1.79544063643328785902e+09,'run f467f30fbb83','users.register','people','f467f30fbb83',NULL,'f9dd7997947ef012c15e426dea6a90b9','{"count":40,"first":0,"hashes":"31b81b4e1a9657355ebaea699842006c219ed852a9e21a33c5c2b48422c66c50"}','8970012e5a3ba68cf38025b8f4e0efe228c3814205f991f36695173c35d6c235','62bba9bc79631b7762debd7de3291afed006d092fec8abe11219d1b2ce7c7567');
INSERT INTO "audit" VALUES(10,1.79544063646263813965e+09,'run f467f30fbb83','round.open','people','f467f30fbb83',0,'ca17fba14a7b5aa8a50bcd9ebe75e4eb','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','62bba9bc79631b7762debd7de3291afed006d092fec8abe11219d1b2ce7c7567','b989dc50c4c72b3bcd4a9e6f95d0f7e36e5e392bbfaa85296b4ea69d3c69c8a6');
INSERT INTO "audit" VALUES(11,1.79544063648447656637e+09,'run f467f30fbb83','round.commit','people','f467f30fbb83',0,'2daf17cc50f1b5c776a8a39c44d101e0','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','b989dc50c4c72b3bcd4a9e6f95d0f7e36e5e392bbfaa85296b4ea69d3c69c8a6','8d046f68c689d49571b40a09b7721483af386ce4b163d107d084976763f24b10');
INSERT INTO "audit" VALUES(12,1.79544063650785899158e+09,'run f467f30fbb83','round.open','people','f467f30fbb83',1,'efd9763565dd3cd9c693e44b0e98c87b','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','8d046f68c689d49571b40a09b7721483af386ce4b163d107d084976763f24b10','7713aa708c1b75a08cd0318baec07e1d690abed11fd41f196c68ddcbcd5f2618');
INSERT INTO "audit" VALUES(13,1.7954406365242192745e+09,'run f467f30fbb83','round.commit','people','f467f30fbb83',1,'23552a7f4e5ec4ce9717516846844726','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','7713aa708c1b75a08cd0318baec07e1d690abed11fd41f196c68ddcbcd5f2618','86be12fe7a32f90455f14c6cafd4b59404629f62b6bf24ade53b10dc7c85ee47');
INSERT INTO "audit" VALUES(14,1.79544063653580188754e+09,'run f467f30fbb83','round.open','people','f467f30fbb83',2,'45fbe3c0edb1416dc92227a7d9329108','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','86be12fe7a32f90455f14c6cafd4b59404629f62b6bf24ade53b10dc7c85ee47','3ba5da275b77eb8aaefb82eb6044e3f144e089766c55924d3621b240e3c0023d');
INSERT INTO "audit" VALUES(15,1.79544063654419374462e+09,'run f467f30fbb83','round.commit','people','f467f30fbb83',2,'2a4244917a273119a0e33bfd802f07e7','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','3ba5da275b77eb8aaefb82eb6044e3f144e089766c55924d3621b240e3c0023d','4df626a71f0aa46d8a3bf5759c19a3b62267ff069851dbd156ca416e44b93a98');
INSERT INTO "audit" VALUES(16,1.79544063655162167546e+09,'f467f30fbb83','run.finish','people','f467f30fbb83',NULL,'ea657bbb4a82d49cbdb39c000cce89f8','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','4df626a71f0aa46d8a3bf5759c19a3b62267ff069851dbd156ca416e44b93a98','135c88d5ef9adf2f30820a51557e8c2a26321431df021753ca4077e429ed7fa8');
INSERT INTO "audit" VALUES(17,1.79544063659380912778e+09,'test','run.start','people','2c7ea7642e29',NULL,'aa939f8b3462244e2450a5bd3e6944ce','{"accounting":"individual","format":3,"key_commitment":"5f04b734bc25b2523c24f54c34953666d08b78a8f12cf34d8cb107d37fc0027e","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','135c88d5ef9adf2f30820a51557e8c2a26321431df021753ca4077e429ed7fa8','1d83f17ac6edcb3648dc398473441d7347b4f7cebeb59192b2df4ed176c91ef8');
INSERT INTO "audit" VALUES(18,1.79544063660247087479e+09,'run 2c7ea7642e29','round.open','people','2c7ea7642e29',0,'6c4f1162e67ebbceebcd5045c7eab336','{"attempt":0,"cohort":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","cohort_size":2,"noise_row":0}','1d83f17ac6edcb3648dc398473441d7347b4f7cebeb59192b2df4ed176c91ef8','926df3adf9fde9b1e0bc2d55c4405847cc724afbb754fe30697b5ed88747b137');
INSERT INTO "audit" VALUES(19,1.79544063662713551526e+09,'run 2c7ea7642e29','round.commit','people','2c7ea7642e29',0,'886045709aebcee4d3e23e8a726edcee','{"attempt":0,"charges":"a33bb6dd8b956e03fa884326928a085e8ec24f13405fc7c28bb2432bf65cd97a","checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":0.8341175486240524,"noise_row":0,"nonce":"07070707070707070707070707070707","participant_count":2,"participants":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','926df3adf9fde9b1e0bc2d55c4405847cc724afbb754fe30697b5ed88747b137','8dc299fca7b70c148e3c912da79fa568d858dea6f0adc980ecb9d389d999b544');
INSERT INTO "audit" VALUES(20,1.79544063664409351351e+09,'2c7ea7642e29','run.finish','people','2c7ea7642e29',NULL,'6e36a7d2a5f616fbbf0417d01f744ae5','{"message":"","odometers":"e03f481ac5ab3e9f5dd1c7fd6e441ad85d92d26921284e747ad913d2e9155685","settled":"{\"mu_squared\":0.12000000000000001,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','8dc299fca7b70c148e3c912da79fa568d858dea6f0adc980ecb9d389d999b544','a214625d63c8fee130772e0ae66294304dfdbe300b2dca99aa45379162d9ff77');
INSERT INTO "audit" VALUES(21,1.79544063668221950532e+09,'test','run.start','people','ae312418ecf1',NULL,'e0634d4faf6371f5e508194896d8118f','{"accounting":"individual","format":3,"key_commitment":"876d6ef71777a2b1397315d4669971428249061af4f52a6f3fa58123e663da2f","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','a214625d63c8fee130772e0ae66294304dfdbe300b2dca99aa45379162d9ff77','0ad988cd20b6c1d3ca1d9a5b23d23c4ce52145499bbca38c56c1ff8b98cec49e');
INSERT INTO "audit" VALUES(22,1.79544063669385552412e+09,'run ae312418ecf1','round.open','people','ae312418ecf1',0,'38a8326ffdad1edf12772e1ac3f248af','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','0ad988cd20b6c1d3ca1d9a5b23d23c4ce52145499bbca38c56c1ff8b98cec49e','4a5381645ef7844276131e876044db99da94a11128f458edf627342ce3aff54f');
INSERT INTO "audit" VALUES(23,1.79544063671622776984e+09,'run ae312418ecf1','round.commit','people','ae312418ecf1',0,'308356dc82675e829c0a45e6f38d84c7','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":0.8341175486240524,"noise_row":0,"nonce":"08080808080808080808080808080808","participant_count":1,"participants":"47950c6e83377475598396d9602df2b18438d1e1193c2ddf095c2e5645f24a43","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','4a5381645ef7844276131e876044db99da94a11128f458edf627342ce3aff54f','9346842dd59740e6f68b46eea82f358ed5663146d871852fdcbba3c4877dea75');
INSERT INTO "audit" VALUES(24,1.79544063672362208365e+09,'ae312418ecf1','run.finish','people','ae312418ecf1',NULL,'412d902573ef7fe35302e9abfc2b67db','{"message":"","odometers":"dac4627d9fd7eb37f49d50ff28f5f8191c3b588d2dc8c314ade1cab1bdc0c992","settled":"{\"mu_squared\":0.16000000000000003,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','9346842dd59740e6f68b46eea82f358ed5663146d871852fdcbba3c4877dea75','65601d386d4ddc11085b565ce4e341a83e85f108329448656d2d3dfb379036c7');
INSERT INTO "audit" VALUES(25,1.7954406367344288826e+09,'trainer','charge.reserve','people',NULL,NULL,'7df6fb5de2dd42890649751b8fd0ec48','{"key":"dp-sgd-1","largest":137438953472,"loss":"{\"mu\":0.1}","price":"{\"leak\":0.0,\"mu_squared\":0.010000000000000002}","what":"ranker","who":"trainer","why":"weekly"}','65601d386d4ddc11085b565ce4e341a83e85f108329448656d2d3dfb379036c7','becde003df3b2de90580ef7873947570747559bd1a4bf550885c8817b0994021');
INSERT INTO "audit" VALUES(26,1795440636.76407,'trainer','charge.commit','people',NULL,NULL,'d02928de8673889a9f94c5e19583d2e2','{"key":"dp-sgd-1"}','becde003df3b2de90580ef7873947570747559bd1a4bf550885c8817b0994021','b42c70a53b23f2e46d264d257c8fcc1c8e3f64dec34414774c41e91016b9e2d8');
INSERT INTO "audit" VALUES(27,1.7954406368128144741e+09,'trainer','charge.reserve','people',NULL,NULL,'9065243b5973304a3d38a94b47cde077','{"key":"dp-sgd-2","largest":137438953472,"loss":"{\"rho\":0.001}","price":"{\"leak\":0.0,\"mu_squared\":0.0037183309503531843}","what":"ranker","who":"trainer","why":"weekly"}','b42c70a53b23f2e46d264d257c8fcc1c8e3f64dec34414774c41e91016b9e2d8','a3a381e11eb5c0d7dad3378c4f05095e8776a91d90511dd1cb7173cc5f43099c');
INSERT INTO "audit" VALUES(28,1.79544063683292913439e+09,'test','run.start','people','0a75883070fa',NULL,'0d6607fec37d0f67fa05e9dbcfa87297','{"accounting":"individual","format":3,"key_commitment":"dec55e9249d0f36d27059ea3f81a9933e22009843094ae8c3f6df6d13fbfaa92","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','a3a381e11eb5c0d7dad3378c4f05095e8776a91d90511dd1cb7173cc5f43099c','24d6266c30249f9e34a0a98dfd9ab50e59bca91ba59290689c02d7c1a1c7e4c1');
INSERT INTO "audit" VALUES(29,1.79544063684870862959e+09,'run 0a75883070fa','round.open','people','0a75883070fa',0,'8f6576653aacc3e305e6b05159978e20','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','24d6266c30249f9e34a0a98dfd9ab50e59bca91ba59290689c02d7c1a1c7e4c1','09940447c80316eda63a5b2e7be0110d1d38a2ad9fdcff645656a90d0f2a04e1');
INSERT INTO "audit" VALUES(30,1.79544063685737490649e+09,'run 0a75883070fa','round.commit','people','0a75883070fa',0,'54e7e71d18343926ced2fec2b2b4008c','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce","epsilon":0.8341175486240524,"noise_row":0,"nonce":"06060606060606060606060606060606","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','09940447c80316eda63a5b2e7be0110d1d38a2ad9fdcff645656a90d0f2a04e1','527eceba9d739fa8f16570b66ad39c2ef12c3e778b1a5ae9127130688c38d38a');
INSERT INTO "audit" VALUES(31,1.79544063687324547762e+09,'run 0a75883070fa','run.interrupt','people','0a75883070fa',NULL,'5d79f950724efa607027170cd0691b4f','{"message":""}','527eceba9d739fa8f16570b66ad39c2ef12c3e778b1a5ae9127130688c38d38a','2330699361e8cee7f895b30c12b1291e9346d117df0853cdd0b89530fc012def');
INSERT INTO "audit" VALUES(32,1.79544063688975930213e+09,'test','run.start','people','17bdb850743e',NULL,'5f06c7fee05c59bec32b0bf6fbb4a0ed','{"accounting":"worst-case","format":3,"key_commitment":"cb10027eef2c2e79b19a919b6284f762d57e7919b6af6339c7977896098e720e","largest":412316860416,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','2330699361e8cee7f895b30c12b1291e9346d117df0853cdd0b89530fc012def','df1f763544b6aa567beca2272fd92959525471cb8ede199feb5342ac6e11f3e7');
INSERT INTO "audit" VALUES(33,1.79544063690547895436e+09,'run 17bdb850743e','round.open','people','17bdb850743e',0,'bcc0640a216648a6e440d05b32ddb103','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','df1f763544b6aa567beca2272fd92959525471cb8ede199feb5342ac6e11f3e7','44cf70362fddb3d8b0e4e0dd7f79e8c29ec514b4d55b5285c83038435b6e35a3');
INSERT INTO "audit" VALUES(34,1.7954406369174451828e+09,'run 17bdb850743e','round.void','people','17bdb850743e',0,'dc80f349d44ee827a665072c1ceb7913','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','44cf70362fddb3d8b0e4e0dd7f79e8c29ec514b4d55b5285c83038435b6e35a3','81e1725a25efa29bbbcedb717fd4a45cf2b034d5e58a47a2de4452d90be9bed3');
INSERT INTO "audit" VALUES(35,1.79544063693060660367e+09,'run 17bdb850743e','round.open','people','17bdb850743e',0,'a786f4254b25a7294a9762162c236fd0','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','81e1725a25efa29bbbcedb717fd4a45cf2b034d5e58a47a2de4452d90be9bed3','595c902eda6ab2554f1aa6fd3b24465cb5e03bb93b042b5995cbd61ee20780c9');
INSERT INTO "audit" VALUES(36,1.79544063694471192358e+09,'run 17bdb850743e','round.commit','people','17bdb850743e',0,'aa3f8446dea25d507d43ce72532ec2d1','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','595c902eda6ab2554f1aa6fd3b24465cb5e03bb93b042b5995cbd61ee20780c9','67286b605066018c9dbc1c114a722874665ab024795cfa480be36bf23988e25f');
INSERT INTO "audit" VALUES(37,1.7954406369803533554e+09,'run 17bdb850743e','users.register','people','17bdb850743e',NULL,'a859e71f7b7570666b6a1412c51548c1','{"count":10,"first":40,"hashes":"c18543301b3598b7a7765d44e0e7f5ed700bfa182fadb8df860ab4a8c3729787","pledged":{"0a75883070fa":274877906944}}','67286b605066018c9dbc1c114a722874665ab024795cfa480be36bf23988e25f','36f4b8cabdeb953e3e3266c558d3e240a9eddf196ec8a8e2b62dd119f47599d8');
INSERT INTO "audit" VALUES(38,1.7954406369974145889e+09,'run 17bdb850743e','round.open','people','17bdb850743e',1,'18a912fd5ccbd8e40d3bce7a26f797ca','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','36f4b8cabdeb953e3e3266c558d3e240a9eddf196ec8a8e2b62dd119f47599d8','efa7e6120e5ba76a32b839ca8779c03f810ceaa5ba2d8a8a44bb794046055cee');
INSERT INTO "audit" VALUES(39,1.79544063700768017763e+09,'officer','population.create','secret',NULL,NULL,'f2134a55487edaf5b598208c27575b31','{"accounting":"worst-case","adjacency":"add_remove","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-05,"epsilon":8.0,"leak":1.0000000000000002e-06,"reservation_seconds":null,"salt":"144fbb939498d925ebfc24f1ad5ea2d745405f3fb7169f0c76cdc1cbfcfe24d5","simulated":false,"two_persons":false,"unit":"user"}','efa7e6120e5ba76a32b839ca8779c03f810ceaa5ba2d8a8a44bb794046055cee','a6b5c14c9e9ad5d5ae110494edd75226dfa3d4395c61a52e074a462bb50f792a');
INSERT INTO "audit" VALUES(40,1.79544063866393327714e+09,'test','run.start','secret','e2f9b3043234',NULL,'4ebffbdc6935f33f1b501f5e268f90c1','{"accounting":"worst-case","format":3,"key_commitment":"09ec17762e571ce3f937b6548affe72a99000f422cdc3e9dd2ede9167b52cab6","most":null,"noise_source":"secure","plan":"25d956277da285ce5ff1eedacfcb5be3e46cf98dcad9cc1d0a09f793ab52cd70","plan_digest":"25d956277da285ce5ff1eedacfcb5be3e46cf98dcad9cc1d0a09f793ab52cd70","planned":"{\"mu_squared\":0.0,\"sampled\":[[0.05,2.0,3]]}","price":"{\"leak\":1e-07,\"mu_squared\":0.007437336250795522}","rounds":4,"strategy":null,"trust_node_ids":false}','a6b5c14c9e9ad5d5ae110494edd75226dfa3d4395c61a52e074a462bb50f792a','79e0edc7e21e3a1788a4704fbcee6b63d09633dee11db410c5fa32481ed57b86');
INSERT INTO "audit" VALUES(41,1.79544063866393327714e+09,'run e2f9b3043234','users.register','secret','e2f9b3043234',NULL,'7c117c19f2b1fe3d391591c7ea6eda4b','{"blind":"d174f95b9efe002b3a15c5a32f661931","count":30,"first":0,"hashes":"3e0add4bda4a07368262a5ebcd1fa2d4db9f29be1bd055e453ed49eb0832f815"}','79e0edc7e21e3a1788a4704fbcee6b63d09633dee11db410c5fa32481ed57b86','114fa0d441583d7a50f5a0efccfb91e0c951873c51a6e46cf5715f1bfb7fcee4');
INSERT INTO "audit" VALUES(42,1.79544063866393327714e+09,'run e2f9b3043234','round.open','secret','e2f9b3043234',0,'b8ca83bb6bc32a5684f4c4f092331280','{"attempt":0,"blind":"0a1b7728154dc6eafff8f46b79a9a591","cohort":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","cohort_size":0,"noise_row":0}','114fa0d441583d7a50f5a0efccfb91e0c951873c51a6e46cf5715f1bfb7fcee4','c9ab9d4b8aa9306de3f7ac9929e6861e81e2e6ca59a82678c3e5a8ffc14e4f78');
INSERT INTO "audit" VALUES(43,1.79544063866393327714e+09,'run e2f9b3043234','round.commit','secret','e2f9b3043234',0,'14a65ef06ef995b0e26ab49bdd8f1115','{"attempt":0,"blind":"74ebd2c13bcc34694fc4b0eccef4887b","checkpoint":"ec18eac8d758b1eba52d3c10d39adc6dd9806472cb4ae069635d383d9086a513","epsilon":0.1804475474266375,"noise_row":0,"nonce":"28282828282828282828282828282828","participant_count":0,"participants":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.0,\"sampled\":[[0.05,2.0,1]]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','c9ab9d4b8aa9306de3f7ac9929e6861e81e2e6ca59a82678c3e5a8ffc14e4f78','8f9f38065dc591b977f4787f61026e42aa13a6809f2bc791657f1f9a30b79687');
INSERT INTO "audit" VALUES(44,1.79544063866393327714e+09,'run e2f9b3043234','round.open','secret','e2f9b3043234',1,'7acf468b3b7004ef2019e5b08927bf0b','{"attempt":0,"blind":"929df22a78e77ac275d6f349a7bf97ae","cohort":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","cohort_size":0,"noise_row":1}','8f9f38065dc591b977f4787f61026e42aa13a6809f2bc791657f1f9a30b79687','ac1f8aa4de1d3635fcff135dc046b861bb248e879b4f8f42f69b05e270838f9b');
INSERT INTO "audit" VALUES(45,1.79544063866393327714e+09,'run e2f9b3043234','round.commit','secret','e2f9b3043234',1,'0296630c8acbbb1cac13ec50fb2f8c9f','{"attempt":0,"blind":"cebedac59c689ae5645dd907130b9654","checkpoint":"e8bc163c82eee18733288c7d4ac636db3a6deb013ef2d37b68322be20edc45cc","epsilon":0.21978123329451935,"noise_row":1,"nonce":"29292929292929292929292929292929","participant_count":0,"participants":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.0,\"sampled\":[[0.05,2.0,2]]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','ac1f8aa4de1d3635fcff135dc046b861bb248e879b4f8f42f69b05e270838f9b','2eab10858bc021160bff418141b2d464fe86c4732c7142f42b6cdebdbb6fce96');
INSERT INTO "audit" VALUES(46,1.79544063866393327714e+09,'run e2f9b3043234','round.open','secret','e2f9b3043234',2,'96b25bb2a37278d11e75458675f536cb','{"attempt":0,"blind":"9a4d762ce75f794a014c22a55e2fce39","cohort":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","cohort_size":0,"noise_row":2}','2eab10858bc021160bff418141b2d464fe86c4732c7142f42b6cdebdbb6fce96','f30015dfba02934a746c1a2aa4e4ac1b3344abc6343041bc55359729a2d1c852');
INSERT INTO "audit" VALUES(47,1.79544063866393327714e+09,'run e2f9b3043234','round.void','secret','e2f9b3043234',2,'61c60b97a4a9a3610d42f6ea6d7a60be','{"attempt":0,"blind":"78164ef5930d3c5e1b9d29fed1f927e0","reason":"too few","rejects":{},"reports":0}','f30015dfba02934a746c1a2aa4e4ac1b3344abc6343041bc55359729a2d1c852','01f17ddbf989dc16658781d1e4e22a78f903480b3762cafeb6f10d67ced22f06');
INSERT INTO "audit" VALUES(48,1.79544063866393327714e+09,'run e2f9b3043234','round.open','secret','e2f9b3043234',2,'eae5cf273a22f4b216c9f9d7ff0d993e','{"attempt":1,"blind":"11a023a046462c5b2f163f8ed1740b96","cohort":"51611879fb72c2efb2e8d2687245c5d05b7a4c6a573a29a7d6ccfab956d654de","cohort_size":0,"noise_row":2}','01f17ddbf989dc16658781d1e4e22a78f903480b3762cafeb6f10d67ced22f06','461f4e6044414b354975743a8c6c8ed5a45395360bef1f0c6e2f52833838d9ca');
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
INSERT INTO "charges" VALUES(1,'dp-sgd-1','trainer','ranker','weekly','{"mu":0.1}','{"leak":0.0,"mu_squared":0.010000000000000002}','committed',1.7954406367344288826e+09,1795440636.76407);
INSERT INTO "charges" VALUES(1,'dp-sgd-2','trainer','ranker','weekly','{"rho":0.001}','{"leak":0.0,"mu_squared":0.0037183309503531843}','reserved',1.7954406368128144741e+09,NULL);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, signed TEXT, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'b8b8340c94aa4f73466d573086480d26',48,'461f4e6044414b354975743a8c6c8ed5a45395360bef1f0c6e2f52833838d9ca',NULL);
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
INSERT INTO "leases" VALUES(1,'',2,8,1.79544063655162167546e+09,30.0);
INSERT INTO "leases" VALUES(2,'',2,3,1.79544063664409351351e+09,30.0);
INSERT INTO "leases" VALUES(3,'',2,3,1.79544063672362208365e+09,30.0);
INSERT INTO "leases" VALUES(4,'',2,3,1.79544063687324547762e+09,30.0);
INSERT INTO "leases" VALUES(5,'test',1,6,1.7954406369974145889e+09,30.0);
INSERT INTO "leases" VALUES(6,'test',1,8,1.79544063873722314827e+09,30.0);
CREATE TABLE objects (
	hash VARCHAR(64) NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_objects PRIMARY KEY (hash)
);
INSERT INTO "objects" VALUES('4668238b763bed962fc7e019d7be6131c17b0e5c2f1295cce353648171d98f17',X'8B79683543DA0868B5A8A8AA1CB060AB');
INSERT INTO "objects" VALUES('781cad0d3a5bda2b6594788ccf27b62fcf72be7801d400a8f9eb00a963767f67',X'546787F6D33DF7262BC42BBE59721CD9');
INSERT INTO "objects" VALUES('23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',X'7B2270726976616379223A207B2261646A6163656E6379223A20227A65726F5F6F7574227D2C202272756E223A207B22726F756E6473223A20347D7D');
INSERT INTO "objects" VALUES('167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39',X'7B226163637572616379223A302E357D');
INSERT INTO "objects" VALUES('144fbb939498d925ebfc24f1ad5ea2d745405f3fb7169f0c76cdc1cbfcfe24d5',X'0E5BBBB1E6FB52D7B1761D0E44490707');
INSERT INTO "objects" VALUES('25d956277da285ce5ff1eedacfcb5be3e46cf98dcad9cc1d0a09f793ab52cd70',X'7B2270726976616379223A7B2261646A6163656E6379223A226164645F72656D6F7665227D2C2272756E223A7B22726F756E645F7365636F6E6473223A36302C22726F756E6473223A337D7D');
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
INSERT INTO "participations" VALUES(10,6,0,0,X'0178DA030000000001',NULL);
INSERT INTO "participations" VALUES(11,6,1,0,X'0178DA030000000001',NULL);
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
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'8B79683543DA0868B5A8A8AA1CB060AB',50,'{"mu_squared":0.16000000000000003,"sampled":[]}',1.79544063609812092779e+09,'officer',8.67361737988403508001e-25,5.0,1.0e-06,NULL,NULL,NULL,0,'individual');
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'546787F6D33DF7262BC42BBE59721CD9',0,'{"mu_squared":0.0,"sampled":[]}',1.79544063631698203086e+09,'officer',1.0e-07,1.0,1.0e-06,NULL,NULL,NULL,0,'worst-case');
INSERT INTO "populations" VALUES(3,'secret',8.0,1.0e-05,'add_remove','user',0,'open',X'0E5BBBB1E6FB52D7B1761D0E44490707',30,'{"mu_squared":0.0,"sampled":[]}',1.79544063700768017763e+09,'officer',1.00000000000000016653e-06,8.0,1.0e-05,NULL,NULL,NULL,0,'worst-case');
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
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79544063646263813965e+09,1.79544063648447656637e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79544063650785899158e+09,1.7954406365242192745e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79544063653580188754e+09,1.79544063654419374462e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'committed',NULL,2,0,2,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{}','{}','',1.79544063660247087479e+09,1.79544063662713551526e+09,'07070707070707070707070707070707');
INSERT INTO "rounds" VALUES(5,3,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{}','{}','',1.79544063669385552412e+09,1.79544063671622776984e+09,'08080808080808080808080808080808');
INSERT INTO "rounds" VALUES(6,4,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce','{}','{}','',1.79544063684870862959e+09,1.79544063685737490649e+09,'06060606060606060606060606060606');
INSERT INTO "rounds" VALUES(7,5,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79544063690547895436e+09,1.7954406369174451828e+09,NULL);
INSERT INTO "rounds" VALUES(8,5,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79544063693060660367e+09,1.79544063694471192358e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(9,5,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.7954406369974145889e+09,NULL,NULL);
INSERT INTO "rounds" VALUES(10,6,0,0,0,'committed',NULL,0,0,0,'{"mu_squared":0.0,"sampled":[[0.05,2.0,1]]}',1.80447547426637489031e-01,'ec18eac8d758b1eba52d3c10d39adc6dd9806472cb4ae069635d383d9086a513','{}','{}','',1.79544063866393327714e+09,1.79544063866393327714e+09,'28282828282828282828282828282828');
INSERT INTO "rounds" VALUES(11,6,1,0,1,'committed',NULL,0,0,0,'{"mu_squared":0.0,"sampled":[[0.05,2.0,2]]}',2.19781233294519345866e-01,'e8bc163c82eee18733288c7d4ac636db3a6deb013ef2d37b68322be20edc45cc','{}','{}','',1.79544063866393327714e+09,1.79544063866393327714e+09,'29292929292929292929292929292929');
INSERT INTO "rounds" VALUES(12,6,2,0,2,'void',NULL,0,0,0,NULL,NULL,NULL,'{}','{}','too few',1.79544063866393327714e+09,1.79544063866393327714e+09,NULL);
INSERT INTO "rounds" VALUES(13,6,2,1,2,'open',X'0178DA030000000001',0,0,0,NULL,NULL,NULL,'{}','{}','',1.79544063866393327714e+09,NULL,NULL);
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
INSERT INTO "runs" VALUES(1,'f467f30fbb83',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','27d471e7e985868684fc9addb4320374c09c1601ef87c535e32fdd897beb7f1f',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79544063639765214923e+09,'test',1.79544063655162167546e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',3,NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(2,'2c7ea7642e29',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','5f04b734bc25b2523c24f54c34953666d08b78a8f12cf34d8cb107d37fc0027e',0,'stopped',NULL,'',1,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b',1.79544063659380912778e+09,'test',1.79544063664409351351e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',3,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(3,'ae312418ecf1',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','876d6ef71777a2b1397315d4669971428249061af4f52a6f3fa58123e663da2f',0,'stopped',NULL,'',1,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79544063668221950532e+09,'test',1.79544063672362208365e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',3,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(4,'0a75883070fa',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','dec55e9249d0f36d27059ea3f81a9933e22009843094ae8c3f6df6d13fbfaa92',0,'interrupted',NULL,'',1,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce',1.79544063683292913439e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',3,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(5,'17bdb850743e',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','cb10027eef2c2e79b19a919b6284f762d57e7919b6af6339c7977896098e720e',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79544063688975930213e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',3,NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(6,'e2f9b3043234',3,'{"privacy":{"adjacency":"add_remove"},"run":{"round_seconds":60,"rounds":3}}','25d956277da285ce5ff1eedacfcb5be3e46cf98dcad9cc1d0a09f793ab52cd70',4,'{"mu_squared":0.0,"sampled":[[0.05,2.0,3]]}','{"mu_squared":0.0,"sampled":[[0.05,2.0,2]]}','secure','09ec17762e571ce3f937b6548affe72a99000f422cdc3e9dd2ede9167b52cab6',0,'running',NULL,'',2,'e8bc163c82eee18733288c7d4ac636db3a6deb013ef2d37b68322be20edc45cc',1.79544063866393327714e+09,'test',NULL,'{"leak":1e-07,"mu_squared":0.007437336250795522}',3,NULL,'worst-case',NULL);
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
INSERT INTO "tokens" VALUES('f93cecc8ff3f','page','bbd80a071cc15964150ea78ed1ca3f48bea16bf4833e2b84198b7e78803dda44','read',1.795440636348402977e+09,'officer',NULL,1.79544063637163138396e+09,NULL);
INSERT INTO "tokens" VALUES('f5e91ad5765e','office','5ec53d206222464593cbdd96016a47561b5e44eaeb6f53f315e5cbb0ba27937a','read admin',1.7954406363638656139e+09,'officer',NULL,NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'00BD9432F2FB0F2067F3FECD5BEAE22E1C9E2A18001E83BB8C57889FE14D81CC4A96F6A25C072C105123D6616A963E157D1FE379B07F200E0DEC32A2D818EEF9794583998D9C68932A2C8F1AAD40536E7EFF2761D698F302560AF0A4ECE43F88040975ACEED59C671B1FF8F160586BF3594DED5E736E33529178C37E5C8FA761B0FDF94E7CD325AEAF714B5700B72F39F456552FE9B5A3275B317A0508FAB8A498148820BB204D503F318D4E8A1259B00C192BE198F05EA1A6375E59016B25092C73CF844B82601AD0C740D77F6959AF2B4ED1190AFFA3E14E54D274249FBDFDAB4CBD6AA36A23E971F05CED2ADB6A156546EF505754E83F8D338464ECE4E6321FA05C67AE5803164453C5E130A5EDD0A6FADEB8E7C650DB045328B5E4D43B50A96E18EA19E02894B8F2B336E0956F203FE3453BFF483BCA42DAA3C1DEB67AFA');
INSERT INTO "users" VALUES(1,40,10,X'CFE791C8FB8620ED5B72F0256323583065E605E8890375C6A79554CE3EC6901F5BC6A6EBFBA938953FEB9A419B7F2FB486840E4BA0AF27B3EC6859FF8EC5F1FF0F04C967EC0C0F64FE6921EFC73D434C');
INSERT INTO "users" VALUES(3,0,30,X'EC717DED3A23A2EAA2D9E39A9912375CB3844A2B19A577D8168C2CF8E36240C234FD68998191BF6F27FE11531B846BE120235F8A0F556272044F286BE34904AAC0BC959A31CDD2DC339BE387084A80EB6C07E31F0E6C13079EBD645FEDAC5BC1E2765A1D85B10A6E1EA20B4BD77E727611C952DD24E79BB991C85DADD75D22925E6FA4B56A723C1127C1231E3159FB771A7FD21E405314C9152D691C02D1A31098BC886F538CD9F3940CCF708972B0AAA1D1BBA403196B5F7367E4B7CEF9684F40B93B3ABCC4AB5135B5A4DC277307A9CF596D63E1B9A3BDE7B01E64EE6D66E34381E0D9899A20FE5251CBB461197A2C');
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
CREATE TRIGGER objects_update BEFORE UPDATE ON objects BEGIN SELECT RAISE(ABORT, 'objects are append-only'); END;
CREATE TRIGGER objects_delete BEFORE DELETE ON objects BEGIN SELECT RAISE(ABORT, 'objects are append-only'); END;
COMMIT;
