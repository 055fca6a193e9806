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
INSERT INTO "audit" VALUES(1,1.7953293436499831677e+09,'officer','population.create','people',NULL,NULL,'6aecff81eecd56fabc16fff2ed602863','{"accounting":"individual","adjacency":"zero_out","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"reservation_seconds":null,"salt":"ffe71e12de599ca9d48255e3a1632c2953e54418f56d4026c9f12c9223724437","simulated":false,"two_persons":false,"unit":"user"}','2a6ab98a959dbf1e29cdea70bd2373a03ca14a0c1c7b9d735346214c80da2c05','c863c365e954c5d1498ad2f43fc50e8b6304cc865f967cd4bdec86fe9ac4f35f');
INSERT INTO "audit" VALUES(2,1.79532934371993184094e+09,'officer','population.raise','people',NULL,NULL,'1c7460123429e73350274a5f755fee60','{"delta":1e-06,"epsilon":5.0,"old":{"delta":1e-06,"epsilon":4.0},"reason":"agreed on 3 May"}','c863c365e954c5d1498ad2f43fc50e8b6304cc865f967cd4bdec86fe9ac4f35f','e68b5bf1c9f531e591bbe8baf549657d532b2cc8a5b264439e487dd762b55327');
INSERT INTO "audit" VALUES(3,1.79532934373418498041e+09,'officer','population.create','others',NULL,NULL,'bef545ebe53541d65b937b9586639cec','{"accounting":"worst-case","adjacency":"add_remove","ceiling_delta":null,"ceiling_epsilon":null,"delta":1e-06,"epsilon":1.0,"leak":1e-07,"reservation_seconds":null,"salt":"41b398ca6e99086c3342a7c3a914d84b635c79ebbc65fcc4172c7f416de17dd3","simulated":false,"two_persons":false,"unit":"user"}','e68b5bf1c9f531e591bbe8baf549657d532b2cc8a5b264439e487dd762b55327','c0a1dd5f74911a9b7b771e8fd933a4834454850964111c89f3860214db8f9828');
INSERT INTO "audit" VALUES(4,1.79532934374265265467e+09,'officer','population.close','others',NULL,NULL,'89a037c2559c02561f6e24b3a63dba18','{"old":{"state":"open"},"reason":"the study is over","state":"closed"}','c0a1dd5f74911a9b7b771e8fd933a4834454850964111c89f3860214db8f9828','9706143d475e4bb86d3b3352bf87719129eb17437581efc83a570f7f8db13a15');
INSERT INTO "audit" VALUES(5,1.79532934374656271935e+09,'officer','token.create',NULL,NULL,NULL,'1e4cb50c8667665ec19f4169c2dddb51','{"digest":"ccc70a2369d3ea116a15a02db44945ee81ce991ef0eb45c08049f836579a53d2","expires_at":null,"id":"5068d1b11e30","name":"page","populations":null,"scopes":["read"]}','9706143d475e4bb86d3b3352bf87719129eb17437581efc83a570f7f8db13a15','0fa966ffce87b66ee4a84fffbe57bc53589b1e7d236a012d02d18f92480031d7');
INSERT INTO "audit" VALUES(6,1.79532934374804759025e+09,'officer','token.create',NULL,NULL,NULL,'f26da88dd97defd38d0e8d76a3fb213a','{"digest":"8ee4bbdcec56f5f69820d5d3621474bc4bbb6df5083d015020fa68eb2e99b3a3","expires_at":null,"id":"be77521665e8","name":"office","populations":null,"scopes":["read","admin"]}','0fa966ffce87b66ee4a84fffbe57bc53589b1e7d236a012d02d18f92480031d7','cc9671bc5d2adb5aae30fc4aa756ce5b69ac15c3e68dbac9c7aa08ae5e7e5ba8');
INSERT INTO "audit" VALUES(7,1.79532934374913334847e+09,'officer','token.revoke',NULL,NULL,NULL,'ef9fdeda4e11cb338c77d153eefe993d','{"id":"5068d1b11e30"}','cc9671bc5d2adb5aae30fc4aa756ce5b69ac15c3e68dbac9c7aa08ae5e7e5ba8','1590a061d74d9ddf9766bb48bdc7a8ac0c02a961ac96150b2b7636f32191bafb');
INSERT INTO "audit" VALUES(8,1.79532934375952672959e+09,'test','run.start','people','e4b1178e87bb',NULL,'8b7d5b780298867641e45cd70af128ad','{"accounting":"worst-case","format":1,"key_commitment":"984133024d2b6c9a789bc75744f78b43929eb72dd630f0263c74abe589ab4bb1","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','1590a061d74d9ddf9766bb48bdc7a8ac0c02a961ac96150b2b7636f32191bafb','6b95bcdd3f4f1ad2f818a6a8373ce5a62c1ec856217ef8fbe0b95366e7d1bda7');
INSERT INTO "audit" VALUES(9,1.79532934377535915377e+09,'run e4b1178e87bb','users.register','people','e4b1178e87bb',NULL,'2af3a50ab6b59272d0e315538f694a81','{"count":40,"first":0,"hashes":"a3744e2a16fb04b4c85bb20ccf621af8866e2c33b7afcf15b83be08cc66a00cb"}','6b95bcdd3f4f1ad2f818a6a8373ce5a62c1ec856217ef8fbe0b95366e7d1bda7','c3b08f708eacb1b8a306b129fa499162ccc3641aa204c9c6c0916b5e89fbdc30');
INSERT INTO "audit" VALUES(10,1.79532934378086590767e+09,'run e4b1178e87bb','round.open','people','e4b1178e87bb',0,'6025d857a03fde7b8775fec982713fb6','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','c3b08f708eacb1b8a306b129fa499162ccc3641aa204c9c6c0916b5e89fbdc30','74e5dd83025f6e66731eaf09c53aa32824f5e7b9c567db0278f268a6c2592d80');
INSERT INTO "audit" VALUES(11,1.79532934379169559473e+09,'run e4b1178e87bb','round.commit','people','e4b1178e87bb',0,'fa65291b951897603cadb81f04b87445','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','74e5dd83025f6e66731eaf09c53aa32824f5e7b9c567db0278f268a6c2592d80','cae0762d444fc8789ee4683b8c4cc9820337a0ed089295bf52f61a090b6d8f4d');
INSERT INTO "audit" VALUES(12,1.79532934379821753506e+09,'run e4b1178e87bb','round.open','people','e4b1178e87bb',1,'16ae98e5df16dee14d08e222f2c868b3','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','cae0762d444fc8789ee4683b8c4cc9820337a0ed089295bf52f61a090b6d8f4d','af20e6b9cdd08a52c50a1aaabb6b2fd2a09a505b3943118858e9d419781c8c7f');
INSERT INTO "audit" VALUES(13,1.79532934380383944511e+09,'run e4b1178e87bb','round.commit','people','e4b1178e87bb',1,'ab325bc5679390b541547b9428ff50fd','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','af20e6b9cdd08a52c50a1aaabb6b2fd2a09a505b3943118858e9d419781c8c7f','3c343417b572428681b8a399efc851e04f016a0c63f43621ae71c26d33b5b48c');
INSERT INTO "audit" VALUES(14,1.79532934380617547037e+09,'run e4b1178e87bb','round.open','people','e4b1178e87bb',2,'83c464e7d2c61b6f6bbaa6183e7fc38a','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','3c343417b572428681b8a399efc851e04f016a0c63f43621ae71c26d33b5b48c','17e143a72eb56d4dc8aaad967712f6694c6b4b5d26dceb8f0dd1bef476709749');
INSERT INTO "audit" VALUES(15,1.79532934381366920473e+09,'run e4b1178e87bb','round.commit','people','e4b1178e87bb',2,'21c9529b5eb22f4448d9f4868550b819','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','17e143a72eb56d4dc8aaad967712f6694c6b4b5d26dceb8f0dd1bef476709749','1ec6b990f77919aa9da23b7c45de00e67abdb713f0e9db309dc5ef2e1c678370');
INSERT INTO "audit" VALUES(16,1.79532934381820487973e+09,'e4b1178e87bb','run.finish','people','e4b1178e87bb',NULL,'6575b5fcb15187c7ebbf319d14d69e9d','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','1ec6b990f77919aa9da23b7c45de00e67abdb713f0e9db309dc5ef2e1c678370','64b06e9807c08b3a41b3f3d6066881b9c15f11ba9bf733d22ee468d69714fd62');
INSERT INTO "audit" VALUES(17,1.79532934383795213695e+09,'test','run.start','people','40ba26114fd7',NULL,'ca9acd45be27211b1caad8c0be7fab12','{"accounting":"individual","format":1,"key_commitment":"f6225ffda119826786fbfcdb8c20c398b1edc30bd50d610a8ac5d94eb56af8b5","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','64b06e9807c08b3a41b3f3d6066881b9c15f11ba9bf733d22ee468d69714fd62','1febfdf4e0b67acc108363babeb4e06cbdeeae5733906d740f9147ecc11dac0a');
INSERT INTO "audit" VALUES(18,1.79532934384814429288e+09,'run 40ba26114fd7','round.open','people','40ba26114fd7',0,'fa1c9345e5a51e371d7137d3f2f1dd89','{"attempt":0,"cohort":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","cohort_size":2,"noise_row":0}','1febfdf4e0b67acc108363babeb4e06cbdeeae5733906d740f9147ecc11dac0a','3f0dee5c419aa6b8e5a94717e2d97c3e78e3772ba89cf58799f5ba6e4dbbf313');
INSERT INTO "audit" VALUES(19,1.79532934385977077486e+09,'run 40ba26114fd7','round.commit','people','40ba26114fd7',0,'b0f38bc4fedad2f67db785c76f3276a0','{"attempt":0,"charges":"a33bb6dd8b956e03fa884326928a085e8ec24f13405fc7c28bb2432bf65cd97a","checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":0.8341175486240524,"noise_row":0,"nonce":"07070707070707070707070707070707","participant_count":2,"participants":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','3f0dee5c419aa6b8e5a94717e2d97c3e78e3772ba89cf58799f5ba6e4dbbf313','b5e155c357424afce261a133a97d2cef3236ab8c9d2990c70eaab3d637a65d2e');
INSERT INTO "audit" VALUES(20,1.79532934386619806282e+09,'40ba26114fd7','run.finish','people','40ba26114fd7',NULL,'128b6c7965f8238f8b6b83b20f726ef8','{"message":"","odometers":"e03f481ac5ab3e9f5dd1c7fd6e441ad85d92d26921284e747ad913d2e9155685","settled":"{\"mu_squared\":0.12000000000000001,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','b5e155c357424afce261a133a97d2cef3236ab8c9d2990c70eaab3d637a65d2e','8304628388442477e4648808b7014ccdcc66fe7a0db5285c6db9cc59589d174c');
INSERT INTO "audit" VALUES(21,1.79532934387987947464e+09,'test','run.start','people','2c66574952bf',NULL,'c7fb62831b7e96da2c91e6b9b340ffa1','{"accounting":"individual","format":1,"key_commitment":"681bc39e3a21834da9a301aec4c508ce70bbb294a8f5e9c7c5c5f415239bb9df","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','8304628388442477e4648808b7014ccdcc66fe7a0db5285c6db9cc59589d174c','aa02e134a568b3c0ee971bebfdaf4043f4095c04dade6510bcd0c8d7481cab71');
INSERT INTO "audit" VALUES(22,1.7953293438913862705e+09,'run 2c66574952bf','round.open','people','2c66574952bf',0,'09de825cacbbfd05f2193e6b965bbf3a','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','aa02e134a568b3c0ee971bebfdaf4043f4095c04dade6510bcd0c8d7481cab71','5ec66987ba2b61faabeb7f4ce771bec8be3f955ccd59eba7e2e8498c00d55f2c');
INSERT INTO "audit" VALUES(23,1.79532934389843440055e+09,'run 2c66574952bf','round.commit','people','2c66574952bf',0,'0379894a62665cc76e21744d014c0588','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":0.8341175486240524,"noise_row":0,"nonce":"08080808080808080808080808080808","participant_count":1,"participants":"47950c6e83377475598396d9602df2b18438d1e1193c2ddf095c2e5645f24a43","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','5ec66987ba2b61faabeb7f4ce771bec8be3f955ccd59eba7e2e8498c00d55f2c','475278add23f07eb17398437296c4c9ec55df77964615bc7d8f88a52faf4e244');
INSERT INTO "audit" VALUES(24,1.7953293439021816253e+09,'2c66574952bf','run.finish','people','2c66574952bf',NULL,'2d33247af999863573e8bbfc87a1700c','{"message":"","odometers":"dac4627d9fd7eb37f49d50ff28f5f8191c3b588d2dc8c314ade1cab1bdc0c992","settled":"{\"mu_squared\":0.16000000000000003,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','475278add23f07eb17398437296c4c9ec55df77964615bc7d8f88a52faf4e244','adeefcea8eb082bf49d862c8af585573a23a920bbeb9b292c5c175173f386e3b');
INSERT INTO "audit" VALUES(25,1.79532934391973114009e+09,'trainer','charge.reserve','people',NULL,NULL,'448c365f68254f4e358291b96cf1b894','{"key":"dp-sgd-1","largest":137438953472,"loss":"{\"mu\":0.1}","price":"{\"leak\":0.0,\"mu_squared\":0.010000000000000002}","what":"ranker","who":"trainer","why":"weekly"}','adeefcea8eb082bf49d862c8af585573a23a920bbeb9b292c5c175173f386e3b','e3b9daed2e477fbddce739668995df91d76ef3b6a32cee105ab3c980d64a615d');
INSERT INTO "audit" VALUES(26,1.79532934393916630746e+09,'trainer','charge.commit','people',NULL,NULL,'1803e8e9e143a6074343eff4f1d5636a','{"key":"dp-sgd-1"}','e3b9daed2e477fbddce739668995df91d76ef3b6a32cee105ab3c980d64a615d','7381fbd5f5d047eb2c281f2ee7e477ed0792cd6a2de9892e036a071e3f535124');
INSERT INTO "audit" VALUES(27,1.79532934398900055885e+09,'trainer','charge.reserve','people',NULL,NULL,'60e754be137c4afa781b19db5d58a3bf','{"key":"dp-sgd-2","largest":137438953472,"loss":"{\"rho\":0.001}","price":"{\"leak\":0.0,\"mu_squared\":0.0037183309503531843}","what":"ranker","who":"trainer","why":"weekly"}','7381fbd5f5d047eb2c281f2ee7e477ed0792cd6a2de9892e036a071e3f535124','41f732e841d1db777fbdcd3956ffed666cd79626af6e350524737e15d809f210');
INSERT INTO "audit" VALUES(28,1795329344.00771,'test','run.start','people','713b84b6d0a4',NULL,'5a531b92ab8e6d71d42a196d2b9b19f3','{"accounting":"individual","format":1,"key_commitment":"52c096a3816711ea8b88956c1d11a7291f5a22b7822b6b7fd1e7d2742ed71cc8","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','41f732e841d1db777fbdcd3956ffed666cd79626af6e350524737e15d809f210','200231e02ad82b37386c4b79e1ceeae2a5e7df2491f9a9aa2ddb9e502a9b28ba');
INSERT INTO "audit" VALUES(29,1.79532934402093219752e+09,'run 713b84b6d0a4','round.open','people','713b84b6d0a4',0,'07f02c2fc3867fbea0ba989b18797ccb','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','200231e02ad82b37386c4b79e1ceeae2a5e7df2491f9a9aa2ddb9e502a9b28ba','1774f0b66ac6193debd74a47929186e011fc9c0845d7d9ad0ec01ed128bf98aa');
INSERT INTO "audit" VALUES(30,1.79532934402796792985e+09,'run 713b84b6d0a4','round.commit','people','713b84b6d0a4',0,'09508b4f5422a918a34f4261c279cf5c','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce","epsilon":0.8341175486240524,"noise_row":0,"nonce":"06060606060606060606060606060606","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','1774f0b66ac6193debd74a47929186e011fc9c0845d7d9ad0ec01ed128bf98aa','607c4f9e1b81611149f574bc2a3734fa22415efa20559e62ad1de28c34a2702b');
INSERT INTO "audit" VALUES(31,1.79532934403416466711e+09,'run 713b84b6d0a4','run.interrupt','people','713b84b6d0a4',NULL,'ff1599e1e9c082c92850480c8fa0dd75','{"message":""}','607c4f9e1b81611149f574bc2a3734fa22415efa20559e62ad1de28c34a2702b','38977e7888ba48585ea77ffa5e67e1a2a45534e858bdfa82081d008e2fd58dd5');
INSERT INTO "audit" VALUES(32,1.79532934404352784154e+09,'test','run.start','people','60f823497ab2',NULL,'c247d8b971e3fc710a98f81d68fb7176','{"accounting":"worst-case","format":1,"key_commitment":"39dac0da5a379ead6e763d99648a43492f1163ff1c794120a3ca429247e1731a","largest":412316860416,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','38977e7888ba48585ea77ffa5e67e1a2a45534e858bdfa82081d008e2fd58dd5','e8dcf7857d23a853fe4dd0e64ac9a13a6d4837f6b5d0a7a527b75f8abe35fd0b');
INSERT INTO "audit" VALUES(33,1.79532934405515885354e+09,'run 60f823497ab2','round.open','people','60f823497ab2',0,'07c519f817c48dec967a71cdf0e7ee74','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','e8dcf7857d23a853fe4dd0e64ac9a13a6d4837f6b5d0a7a527b75f8abe35fd0b','14313b66b3e31727a9b1e8e4a85d9fb25e519b81bfe62a414f9f3014e752f01e');
INSERT INTO "audit" VALUES(34,1.79532934405810356138e+09,'run 60f823497ab2','round.void','people','60f823497ab2',0,'70a15d1a53927b52eb4b11fc8a763169','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','14313b66b3e31727a9b1e8e4a85d9fb25e519b81bfe62a414f9f3014e752f01e','50b96fe943b6ed52753bab4e64452f43e4d11745049f5afdfc186b12ea44dc75');
INSERT INTO "audit" VALUES(35,1.7953293440621592999e+09,'run 60f823497ab2','round.open','people','60f823497ab2',0,'92eb51399217ea88741f883f33bd267c','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','50b96fe943b6ed52753bab4e64452f43e4d11745049f5afdfc186b12ea44dc75','3c736ffe7b7911a85d59e041a07648b71e09e81fbab87e52dfa4951900cdba5b');
INSERT INTO "audit" VALUES(36,1795329344.06629,'run 60f823497ab2','round.commit','people','60f823497ab2',0,'56e1f2cbec5ee9a84c9c8fffa9545476','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','3c736ffe7b7911a85d59e041a07648b71e09e81fbab87e52dfa4951900cdba5b','8b2eddf7c6e4903ba6644902212c1b820af4046b4872dc1ab669afad560961b4');
INSERT INTO "audit" VALUES(37,1.79532934407345747948e+09,'run 60f823497ab2','users.register','people','60f823497ab2',NULL,'1b82fc3cdc388599bec35e0347bb4863','{"count":10,"first":40,"hashes":"4e093ffbdd332d21ec05584edd9aa62146eb6ceeeb1bb9d24b64b66742c8aaf3","pledged":{"713b84b6d0a4":274877906944}}','8b2eddf7c6e4903ba6644902212c1b820af4046b4872dc1ab669afad560961b4','61a0b3b81423cfbed0833159c54a6b105883c2fba9257278fdb3a739b5c5b52a');
INSERT INTO "audit" VALUES(38,1.7953293440866341591e+09,'run 60f823497ab2','round.open','people','60f823497ab2',1,'7bf920bcd499862e3124e7a717c82f46','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','61a0b3b81423cfbed0833159c54a6b105883c2fba9257278fdb3a739b5c5b52a','d6fa3d8dece73a292c9f233a79c30e1a46b6a313c65fd940bfd51f5c8b0442c8');
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
INSERT INTO "charges" VALUES(1,'dp-sgd-1','trainer','ranker','weekly','{"mu":0.1}','{"leak":0.0,"mu_squared":0.010000000000000002}','committed',1.79532934391973114009e+09,1.79532934393916630746e+09);
INSERT INTO "charges" VALUES(1,'dp-sgd-2','trainer','ranker','weekly','{"rho":0.001}','{"leak":0.0,"mu_squared":0.0037183309503531843}','reserved',1.79532934398900055885e+09,NULL);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, signed TEXT, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'138a33a56b0db64b0c1b9e1ab09d6ec5',38,'d6fa3d8dece73a292c9f233a79c30e1a46b6a313c65fd940bfd51f5c8b0442c8',NULL);
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
INSERT INTO "leases" VALUES(1,'',2,8,1.79532934381820487973e+09,30.0);
INSERT INTO "leases" VALUES(2,'',2,3,1.79532934386619806282e+09,30.0);
INSERT INTO "leases" VALUES(3,'',2,3,1.7953293439021816253e+09,30.0);
INSERT INTO "leases" VALUES(4,'',2,3,1.79532934403416466711e+09,30.0);
INSERT INTO "leases" VALUES(5,'test',1,6,1.7953293440866341591e+09,30.0);
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
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'917FD389918B2F335704AD6F4350C627',50,'{"mu_squared":0.16000000000000003,"sampled":[]}',1.7953293436499831677e+09,'officer',8.67361737988403508001e-25,5.0,1.0e-06,NULL,NULL,NULL,0,'individual');
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'356117CB743232AE7E23C18A0C46C7EE',0,'{"mu_squared":0.0,"sampled":[]}',1.79532934373418498041e+09,'officer',1.0e-07,1.0,1.0e-06,NULL,NULL,NULL,0,'worst-case');
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
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79532934378086590767e+09,1.79532934379169559473e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79532934379821753506e+09,1.79532934380383944511e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79532934380617547037e+09,1.79532934381366920473e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'committed',NULL,2,0,2,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{}','{}','',1.79532934384814429288e+09,1.79532934385977077486e+09,'07070707070707070707070707070707');
INSERT INTO "rounds" VALUES(5,3,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{}','{}','',1.7953293438913862705e+09,1.79532934389843440055e+09,'08080808080808080808080808080808');
INSERT INTO "rounds" VALUES(6,4,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce','{}','{}','',1.79532934402093219752e+09,1.79532934402796792985e+09,'06060606060606060606060606060606');
INSERT INTO "rounds" VALUES(7,5,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79532934405515885354e+09,1.79532934405810356138e+09,NULL);
INSERT INTO "rounds" VALUES(8,5,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.7953293440621592999e+09,1795329344.06629,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(9,5,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.7953293440866341591e+09,NULL,NULL);
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
INSERT INTO "runs" VALUES(1,'e4b1178e87bb',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','984133024d2b6c9a789bc75744f78b43929eb72dd630f0263c74abe589ab4bb1',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79532934375952672959e+09,'test',1.79532934381820487973e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',1,NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(2,'40ba26114fd7',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','f6225ffda119826786fbfcdb8c20c398b1edc30bd50d610a8ac5d94eb56af8b5',0,'stopped',NULL,'',1,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b',1.79532934383795213695e+09,'test',1.79532934386619806282e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(3,'2c66574952bf',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','681bc39e3a21834da9a301aec4c508ce70bbb294a8f5e9c7c5c5f415239bb9df',0,'stopped',NULL,'',1,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79532934387987947464e+09,'test',1.7953293439021816253e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(4,'713b84b6d0a4',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','52c096a3816711ea8b88956c1d11a7291f5a22b7822b6b7fd1e7d2742ed71cc8',0,'interrupted',NULL,'',1,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce',1795329344.00771,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(5,'60f823497ab2',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','39dac0da5a379ead6e763d99648a43492f1163ff1c794120a3ca429247e1731a',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79532934404352784154e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'worst-case',NULL);
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
INSERT INTO "tokens" VALUES('5068d1b11e30','page','ccc70a2369d3ea116a15a02db44945ee81ce991ef0eb45c08049f836579a53d2','read',1.79532934374656271935e+09,'officer',NULL,1.79532934374913334847e+09,NULL);
INSERT INTO "tokens" VALUES('be77521665e8','office','8ee4bbdcec56f5f69820d5d3621474bc4bbb6df5083d015020fa68eb2e99b3a3','read admin',1.79532934374804759025e+09,'officer',NULL,NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'10C3FC24CF28C5237BEC4E6F966B51A640BC15BCFA6ED4C7614718154AE0E34608D7B60C2BB1F06F8B658D9AF3382CAEE9EA5F5D89EDA211CD11D59D5F998158645038B534F7E9778F7DB7526931C8912A2AD1152B3BD05F7DE0782C96552F6CD47DDA728DBB76C8A18496CA856803AB63F0643DDDBBA2C1CFD755DBC7EA87A08C890633F7F9B0B8D5C5746494B5541D33B4035FC7EDC766398EB9357C052830EA3A1260973EF08E023E02F47B9F4A3327135FF4D239653BA5254C2241EB8E1F904D3CE3F47647A918BC029A24F88C42455EB67C24716F7FA15006194252048D3E244163B54D0423DDEDCC5D87D3740C7AD7CAD9A91894F914BA53752FF6DF87247236E0A1556D647041CDED60922299FA21C9D9F03CFD4D8E9631FA9F895CE1FCFC72508381C2220C19D9B59FA6ED4404537234657F3AF8AD8CC8B166C64144');
INSERT INTO "users" VALUES(1,40,10,X'9FDB272B1FA4F82F7231CF84BCF91C1F9607C2B06546868D964E1A7033C5B4769C60769F578C4134BD186C5487F4C28D7150B9B8D50F4DE872649BF00E0579A90ADA2061BD137F4E14D112CF7A7A7BE4');
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
